// Checksum of 64-bit words and their places. It detects a word that is changed, missing, or in the place of another.
//
// It has two sums: the sum of the words, and the sum of the words times their places. So the pieces of a record may be
// added in any order and at any length, and a copy can add the words while it copies them, two at a time. The checksum is
// no defence against an adversary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "penstock/memory/hash.hpp"
#include "penstock/memory/words.hpp"

namespace penstock::memory {

// The sum of every n-th word, where n is the number of words in a Lane; and the sum of all values that this sum has had.
template <class Lane>
struct RunningSums {
    Lane plain{};
    Lane running{};

    void add(Lane words) {
        // Sign and exponent of a number are high bits. A product with a power of two would lose them, so they are folded
        // into the low bits.
        plain += words ^ (words >> 32);
        running += plain;
    }
};

class Checksum {
  public:
    // Adds the sums of `count` words: word `first` of the record, and then every n-th word.
    void add(std::uint64_t plain, std::uint64_t running, std::size_t first, std::size_t count, std::size_t n) {
        plain_ += plain;
        // `running` contains the first word `count` times and the last word once.
        placed_ += first * plain + n * (count * plain - running);
    }

    // The checksum of the words added so far, and of two numbers that belong to them.
    [[nodiscard]] std::uint64_t value(std::uint64_t number, std::uint64_t other) const {
        return hash_word(hash_word(hash_word(hash_word(hash_start, plain_), placed_), number), other);
    }

  private:
    std::uint64_t plain_ = 0;
    std::uint64_t placed_ = 0;
};

// Sums the words that store_words() and load_words() copy, from word `first` of a record on.
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

// Sums plain memory that no process writes, from word `first` of a record on. Missing bytes of the last word count as 0.
inline void sum_words(const void* from, std::size_t nbytes, Checksum& checksum, std::size_t first) {
    const auto* source = static_cast<const unsigned char*>(from);
    SumInto into{checksum, first};
    const std::size_t whole = nbytes / word_bytes;
    std::size_t done = 0;
#ifdef PENSTOCK_PAIRS
    RunningSums<Lanes> pairs;
    PENSTOCK_UNROLL
    for (; done + 2 <= whole; done += 2) {
        Lanes pair;
        std::memcpy(&pair, source + done * word_bytes, sizeof(pair));
        pairs.add(pair);
    }
    into.add(pairs, 0, done / 2);
#endif
    RunningSums<std::uint64_t> sums;
    const std::size_t at = done;
    for (; done < whole; ++done) {
        std::uint64_t word;
        std::memcpy(&word, source + done * word_bytes, word_bytes);
        sums.add(word);
    }
    if (const std::size_t rest = nbytes % word_bytes; rest != 0) {
        std::uint64_t word = 0;
        std::memcpy(&word, source + whole * word_bytes, rest);
        sums.add(word);
    }
    into.add(sums, at, words_for(nbytes) - at);
}

}  // namespace penstock::memory
