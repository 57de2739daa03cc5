// The functions of one instruction-set level, as a table. The same source is compiled once for each level.
// They compute with integers only, so every level gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock::replay {

// The key of a sample: (seed, number), and within a batch the position and the attempt.
struct SampleKey {
    std::uint64_t seed;
    std::uint64_t number;
    std::uint32_t attempt;
};

// Functions on the 16 children of a node of a sum tree. They are null where each child must be a single atomic.
struct NodeSums {
    std::uint64_t (*sum)(const std::uint64_t* words, std::uint64_t mask) = nullptr;
    // Returns the first word at which the sum passes `point`, or 16 if none does. Subtracts the sum of the words before it
    // from `point`.
    std::size_t (*find)(const std::uint64_t* words, std::uint64_t mask, std::uint64_t& point) = nullptr;
};

struct Level {
    const char* name;
    // Four words for each of [count] positions, as words[4][count].
    void (*random_words)(const SampleKey&, const std::uint32_t* positions, std::size_t count, std::uint32_t* words);
    NodeSums sums;
};

// Every level that this processor can run, slowest first.
std::span<const Level* const> levels();

// The fastest of these levels, or the one called `name`. Throws std::invalid_argument if this processor lacks it.
const Level& best_level();
const Level& level(const char* name);

}  // namespace penstock::replay
