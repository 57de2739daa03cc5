// Counter-based words: Philox4x32-10 (Salmon et al. 2011, https://doi.org/10.1145/2063384.2063405), several counters at once.
// It computes with integers only, so the words are the same on every machine and at every level.
#pragma once

#include <cstdint>

#include "penstock/kernels/vec.hpp"

namespace penstock::kernels {
namespace {

constexpr int kBatch = 8;  // counters at a time: the loops over them become vector code

struct Words {
    std::uint32_t word[4][kBatch];
};

PENSTOCK_INLINE void philox(Words& x, std::uint64_t key) {
    auto key0 = static_cast<std::uint32_t>(key);
    auto key1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
        for (int i = 0; i < kBatch; ++i) {
            const std::uint64_t a = std::uint64_t{0xD2511F53U} * x.word[0][i];
            const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * x.word[2][i];
            x.word[0][i] = static_cast<std::uint32_t>(b >> 32) ^ x.word[1][i] ^ key0;
            x.word[2][i] = static_cast<std::uint32_t>(a >> 32) ^ x.word[3][i] ^ key1;
            x.word[1][i] = static_cast<std::uint32_t>(b);
            x.word[3][i] = static_cast<std::uint32_t>(a);
        }
        key0 += 0x9E3779B9U;
        key1 += 0xBB67AE85U;
    }
}

}  // namespace
}  // namespace penstock::kernels
