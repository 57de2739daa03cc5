// A fault point in the headers at which no test kills a process is an error.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>

#include "check.hpp"
#include "kills.hpp"

using penstock::test::killed_at;

// It uses the results of the suite's other tests, so this file comes last in CMakeLists.txt.
TEST(kills, every_fault_point_in_the_headers) {
    const std::regex point("PENSTOCK_FAULT_POINT\\(\"([^\"]+)\"\\)");
    std::size_t points = 0;
    for (const auto& header : std::filesystem::directory_iterator(PENSTOCK_HEADERS)) {
        std::ifstream file(header.path());
        for (std::string line; std::getline(file, line);) {
            for (std::sregex_iterator match(line.begin(), line.end(), point), end; match != end; ++match) {
                ++points;
                const std::string name = (*match)[1];
                if (!killed_at.contains(name)) {
                    std::fprintf(stderr, "no test kills a process at %s\n", name.c_str());
                }
                CHECK(killed_at.contains(name));
            }
        }
    }
    CHECK(points > 25);
}
