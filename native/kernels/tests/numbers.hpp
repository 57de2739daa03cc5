// Tools of the tests: a check that ends the program, and a source of numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace penstock::test {

inline void check(bool holds, const std::string& what) {
    if (holds) return;
    std::fprintf(stderr, "failed: %s\n", what.c_str());
    std::exit(1);
}

// Pseudo-random numbers in [-1, 1), without a library.
class Numbers {
public:
    float next() {
        state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
        return static_cast<float>(static_cast<std::int32_t>(state_ >> 32)) * 0x1p-31F;
    }
    std::vector<float> many(std::size_t count) {
        std::vector<float> values(count);
        for (float& value : values) value = next();
        return values;
    }

private:
    std::uint64_t state_ = 42;
};

}  // namespace penstock::test
