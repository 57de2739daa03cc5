// Whole numbers below a bound from uniform bits, without a division.
#pragma once

#include <cstdint>

namespace penstock::replay {

__extension__ typedef unsigned __int128 Wide;

// All numbers are equally likely, up to a relative error of range * 2^-64.
constexpr std::uint64_t below(std::uint64_t bits, std::uint64_t range) {
    return static_cast<std::uint64_t>((static_cast<Wide>(bits) * range) >> 64);
}

// The same with 32 bits: up to a relative error of range * 2^-32.
constexpr std::uint32_t below(std::uint32_t bits, std::uint64_t range) {
    return static_cast<std::uint32_t>((bits * range) >> 32);
}

// A point in part i of m equal parts of [0, total), as far as whole numbers allow. m is below 2^32.
constexpr std::uint64_t stratum_point(std::uint64_t i, std::uint64_t m, std::uint64_t total, std::uint64_t bits) {
    // i * total / m without a product of 128 bits, because a division of 128 bits takes 20 ns.
    const auto begin = [&](std::uint64_t part) { return part * (total / m) + part * (total % m) / m; };
    return begin(i) + below(bits, begin(i + 1) - begin(i));
}

}  // namespace penstock::replay
