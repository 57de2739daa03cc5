// Rows: what is taken has the bits of the numbers, and nothing else is taken. Each body lies in memory of exactly its size,
// so that the address sanitizer finds each access behind it.
#include "penstock/gamecore/row.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "check.hpp"

namespace {

// The numbers, and behind them the reward, if there is one.
std::optional<std::vector<float>> read(std::string_view body, std::size_t count) {
    const std::unique_ptr<char[]> exact(new char[body.size()]);
    std::copy(body.begin(), body.end(), exact.get());
    std::vector<float> row(count);
    std::unique_ptr<char[]> bytes(new char[count * sizeof(float)]);
    std::optional<double> reward;
    if (!penstock::gamecore::RowReader({exact.get(), body.size()}).read(bytes.get(), count, reward)) {
        return std::nullopt;
    }
    std::memcpy(row.data(), bytes.get(), count * sizeof(float));
    if (reward) {
        row.push_back(static_cast<float>(*reward));
    }
    return row;
}

}  // namespace

TEST(row, takes_numbers_as_json_writes_them) {
    const auto found = read(" {\t\"obs\" :\r\n[ 1.5,-2 , 0.1,1e2,1E-2,1.0e+1 ] } ", 6);
    CHECK(found == (std::vector<float>{1.5F, -2.0F, 0.1F, 100.0F, 0.01F, 10.0F}));
    CHECK(read(R"({"obs": [-0.0]})", 1).has_value());
    CHECK(read(R"({"obs": [1.0] , "reward" : -2.5 })", 1) == (std::vector<float>{1.0F, -2.5F}));
    CHECK(read(R"({"obs": [3.4028234663852886e38]})", 1).has_value());
}

TEST(row, leaves_everything_else_to_a_reader_of_json) {
    for (const char* body : {
             "", "{", "[]", R"({"obs": [1.0)", R"({"obs": [1.0])", R"({"obs": [1.0]}x)", R"({"obs": [1.0,]})", R"({"obs": [,1.0]})",
             R"({"obs": [1.0, 2.0]})", R"({"obs": []})", R"({"obs": 1.0})", R"({"obs": [[1.0]]})", R"({"obs": ["1.0"]})",
             R"({"obs": [true]})", R"({"obs": [null]})", R"({"obs": [NaN]})", R"({"obs": [inf]})", R"({"obs": [1e400]})",
             R"({"obs": [3.5e38]})", R"({"obs": [01.0]})", R"({"obs": [.5]})", R"({"obs": [1.]})", R"({"obs": [+1.0]})",
             R"({"obs": [1.0e]})", R"({"obs": [1.0e+]})", R"({"obs": [-]})", R"({"obs": [0x1p3]})", R"({"obs": [-0]})",
             R"({"obs": [1234567890123456]})", R"({"obs": [1.0], "reward": 1.0, "terminated": true})",
             R"({"obs": [1.0], "reward": null})", R"({"obs": [1.0], "reward": 1e39})", R"({"obs": [1.0], "reward": "1"})",
             R"({"obs": [1.0], "reward": })", R"({"obs": [1.0], "rewards": 1.0})", R"({"obs": [1.0],})",
             R"({"reward": 1.0, "obs": [1.0]})", R"({"obs": [1.0], "reward": 1.0)", R"({"obs": [1.0], "reward": 1.0]})",
             R"({"ob": [1.0]})", R"({"obs" [1.0]})",
         }) {
        CHECK(!read(body, 1));
    }
}

TEST(row, bytes_that_are_no_body_do_no_harm) {
    std::mt19937_64 chance(5);
    const std::string good = R"({"obs": [-0.13804203271865845, 12, 3.5e-7]})";
    const std::string_view other = "0123456789012345.,-+eE []{}\"";
    std::size_t taken = 0;
    for (int round = 0; round < 30000; ++round) {
        std::string bad = good;
        for (int change = 0; change < 2; ++change) {
            bad[chance() % bad.size()] = other[chance() % other.size()];
        }
        bad.resize(chance() % 8 == 0 ? chance() % (bad.size() + 1) : bad.size());
        taken += read(bad, 3) ? 1 : 0;
    }
    CHECK(taken > 1000);
    CHECK(taken < 29000);
}
