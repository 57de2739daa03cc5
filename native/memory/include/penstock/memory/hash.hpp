// A rolling 64-bit hash of observations: the same bytes in the same order give the same value on every machine.
//
// A restored episode has the same hash as the original one, unless it went another way. The hash is no defence against an
// adversary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace penstock::memory {

inline constexpr std::uint64_t hash_start = 0x243F6A8885A308D3U;

constexpr std::uint64_t hash_word(std::uint64_t hash, std::uint64_t word) {
    const std::uint64_t product = (hash ^ word) * 0x9E3779B97F4A7C15U;
    return product ^ (product >> 32);
}

inline std::uint64_t hash_bytes(std::uint64_t hash, const void* from, std::size_t nbytes) {
    const auto* bytes = static_cast<const unsigned char*>(from);
    const auto word_at = [bytes](std::size_t at) {
        std::uint64_t word;
        std::memcpy(&word, bytes + at, sizeof word);
        return word;
    };
    std::size_t at = 0;
    if (nbytes >= 64) {
        // Four chains: one chain of multiplications would take 5 cycles for each word, too slow for images.
        std::uint64_t chain[4] = {hash, hash + 1, hash + 2, hash + 3};
        for (; at + 32 <= nbytes; at += 32) {
            for (std::size_t i = 0; i < 4; ++i) {
                chain[i] = hash_word(chain[i], word_at(at + 8 * i));
            }
        }
        hash = hash_word(hash_word(hash_word(chain[0], chain[1]), chain[2]), chain[3]);
    }
    for (; at + 8 <= nbytes; at += 8) {
        hash = hash_word(hash, word_at(at));
    }
    if (at < nbytes) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes + at, nbytes - at);
        hash = hash_word(hash, word);
    }
    return hash;
}

}  // namespace penstock::memory
