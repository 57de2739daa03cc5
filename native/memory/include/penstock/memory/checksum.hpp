// Checksum: of 64-bit words and the places where they stand. A word that is altered, missing, or in another's place is found.
//
// Two sums: of the words, and of the words times their places. So pieces of a record may be added in any order and of any
// length, and a copy can add up what it copies on its way, two words at a time. It is no defence against an adversary.
#pragma once

#include <cstddef>
#include <cstdint>

#include "penstock/memory/hash.hpp"

namespace penstock::memory {

// Of every n-th word, as many as a Lane holds: their sum, and the sum of all that this sum has been.
template <class Lane>
struct RunningSums {
    Lane plain{};
    Lane running{};

    void add(Lane words) {
        // The sign and the exponent of a number are high bits: times a round distance they would be lost. Folded down they
        // are not.
        plain += words ^ (words >> 32);
        running += plain;
    }
};

class Checksum {
  public:
    // The sums of `count` words: word `first` of the record, and then every n-th.
    void add(std::uint64_t plain, std::uint64_t running, std::size_t first, std::size_t count, std::size_t n) {
        plain_ += plain;
        // The first of them is in `running` count times, the last once.
        placed_ += first * plain + n * (count * plain - running);
    }

    // Of the words added so far, and of two numbers that belong to them.
    [[nodiscard]] std::uint64_t value(std::uint64_t number, std::uint64_t other) const {
        return hash_word(hash_word(hash_word(hash_word(hash_start, plain_), placed_), number), other);
    }

  private:
    std::uint64_t plain_ = 0;
    std::uint64_t placed_ = 0;
};

// Sums what store_words() and load_words() copy, from word `first` of a record on.
struct SumInto {
    template <class Lane>
    using Sums = RunningSums<Lane>;

    Checksum& checksum;
    std::size_t first;

    void add(const RunningSums<std::uint64_t>& sums, std::size_t at, std::size_t count) {
        checksum.add(sums.plain, sums.running, first + at, count, 1);
    }

    template <class Pair>
    void add(const RunningSums<Pair>& sums, std::size_t at, std::size_t count) {
        for (std::size_t lane = 0; lane < 2; ++lane) {
            checksum.add(sums.plain[lane], sums.running[lane], first + at + lane, count, 2);
        }
    }
};

}  // namespace penstock::memory
