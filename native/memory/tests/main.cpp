// Runs the tests of one suite, or all.
#include <cstdio>
#include <string>

#include "check.hpp"

int main(int count, char** arguments) {
    const std::string wanted = count > 1 ? arguments[1] : "";
    int ran = 0;
    for (const auto& test : penstock::test::tests()) {
        if (!wanted.empty() && wanted != test.suite) {
            continue;
        }
        std::printf("%s.%s\n", test.suite, test.name);
        std::fflush(stdout);
        test.run();
        ++ran;
    }
    std::printf("%d passed\n", ran);
    return ran > 0 ? 0 : 1;
}
