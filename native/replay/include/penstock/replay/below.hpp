// Whole numbers below a bound from uniform bits, without a division.
#pragma once

#include <cstdint>

namespace penstock::replay {

__extension__ typedef unsigned __int128 Wide;

// One is as likely as another but for 2^-64 of the range.
constexpr std::uint64_t below(std::uint64_t bits, std::uint64_t range) {
    return static_cast<std::uint64_t>((static_cast<Wide>(bits) * range) >> 64);
}

// But for 2^-32 of the range.
constexpr std::uint32_t below(std::uint32_t bits, std::uint64_t range) {
    return static_cast<std::uint32_t>((bits * range) >> 32);
}

// A point in part i of m equal parts of [0, total), as far as whole numbers allow; in [0, total) if there are fewer.
constexpr std::uint64_t stratum_point(std::uint64_t i, std::uint64_t m, std::uint64_t total, std::uint64_t bits) {
    const auto begin = static_cast<std::uint64_t>(static_cast<Wide>(i) * total / m);
    const auto end = static_cast<std::uint64_t>(static_cast<Wide>(i + 1) * total / m);
    return begin + below(bits, end - begin);
}

}  // namespace penstock::replay
