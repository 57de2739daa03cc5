// What one instruction-set level offers, as a table of functions; the same source is compiled once per level.
// Integers only: every level gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock::replay {

// What is drawn is keyed by (seed, number) and, within a batch, by the position in it and the attempt at it.
struct Draw {
    std::uint64_t seed;
    std::uint64_t number;
    std::uint32_t attempt;
};

// On the 16 children of a node of a sum tree; nothing where they must be single atomics.
struct NodeSums {
    std::uint64_t (*sum)(const std::uint64_t* words, std::uint64_t mask) = nullptr;
    // The first word at which the sum passes `point`, which becomes what is left of it there; 16 if none does.
    std::size_t (*find)(const std::uint64_t* words, std::uint64_t mask, std::uint64_t& point) = nullptr;
};

struct Level {
    const char* name;
    // Four words for each of [count] positions, as words[4][count].
    void (*draw)(const Draw&, const std::uint32_t* positions, std::size_t count, std::uint32_t* words);
    NodeSums sums;
};

// Every level that this processor can run, slowest first.
std::span<const Level* const> levels();

// The fastest of them, or the one called `name`; throws std::invalid_argument if this processor lacks it.
const Level& best_level();
const Level& level(const char* name);

}  // namespace penstock::replay
