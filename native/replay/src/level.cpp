// Compiled once for each instruction-set level, with PENSTOCK_LEVEL as the level's name. Includes no standard library code
// with external linkage: the linker keeps one copy of such code, perhaps one that this processor cannot run.

#include "penstock/replay/level.hpp"

#include "penstock/kernels/philox.hpp"

#define PENSTOCK_TEXT(name) #name
#define PENSTOCK_NAME(name) PENSTOCK_TEXT(name)

namespace penstock::replay {
namespace {

using kernels::kBatch;

// Noise has the lane in the counter's second word. The highest bit of that word keeps the counters of sampling apart.
constexpr std::uint32_t kSampling = 0x80000000U;

void random_words(const SampleKey& key, const std::uint32_t* positions, std::size_t count, std::uint32_t* words) {
    for (std::size_t start = 0; start < count; start += kBatch) {
        const std::size_t batch = count - start < kBatch ? count - start : kBatch;
        kernels::Words counters;
        for (std::size_t i = 0; i < kBatch; ++i) {
            counters.word[0][i] = positions[start + (i < batch ? i : 0)];
            counters.word[1][i] = kSampling | key.attempt;
            counters.word[2][i] = static_cast<std::uint32_t>(key.number);
            counters.word[3][i] = static_cast<std::uint32_t>(key.number >> 32);
        }
        kernels::philox(counters, key.seed);
        for (std::size_t k = 0; k < 4; ++k)
            for (std::size_t i = 0; i < batch; ++i) words[k * count + start + i] = counters.word[k][i];
    }
}

// The loads of a node's children must stay behind the load of the node itself. On x86 the processor keeps this order, and
// compilers move no load over the call. On other processors the tree loads the children as atomics.
#if defined(__x86_64__)
constexpr std::size_t kChildren = 16;

std::uint64_t sum(const std::uint64_t* words, std::uint64_t mask) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < kChildren; ++i) sum += words[i] & mask;
    return sum;
}

#if defined(__AVX512F__)
// The intrinsics have a mask of all lanes, because gcc 12 warns of uninitialised reads at those without a mask.
constexpr __mmask8 kAll = 0xFF;

// Sums of the first 1, 2, ..., 8 words. The three steps add the words 1, 2 and 4 places before.
PENSTOCK_INLINE __m512i running(__m512i words) {
    const __m512i zero = _mm512_setzero_si512();
    words = _mm512_add_epi64(words, _mm512_maskz_alignr_epi64(kAll, words, zero, 7));
    words = _mm512_add_epi64(words, _mm512_maskz_alignr_epi64(kAll, words, zero, 6));
    return _mm512_add_epi64(words, _mm512_maskz_alignr_epi64(kAll, words, zero, 4));
}

std::size_t find(const std::uint64_t* words, std::uint64_t mask, std::uint64_t& point) {
    const __m512i masks = _mm512_set1_epi64(static_cast<long long>(mask));
    const __m512i points = _mm512_set1_epi64(static_cast<long long>(point));
    const __m512i low = running(_mm512_and_si512(_mm512_loadu_si512(words), masks));
    const __m512i last = _mm512_maskz_permutexvar_epi64(kAll, _mm512_set1_epi64(7), low);
    const __m512i high = _mm512_add_epi64(running(_mm512_and_si512(_mm512_loadu_si512(words + 8), masks)), last);
    std::uint64_t before[kChildren + 1];
    before[0] = 0;
    _mm512_storeu_si512(before + 1, low);
    _mm512_storeu_si512(before + 9, high);
    // Sums only grow, so the sums that do not pass the point come first.
    const int passed = __builtin_popcount(_mm512_cmple_epu64_mask(low, points)) +
                       __builtin_popcount(_mm512_cmple_epu64_mask(high, points));
    point -= before[passed];
    return static_cast<std::size_t>(passed);
}
#else
std::size_t find(const std::uint64_t* words, std::uint64_t mask, std::uint64_t& point) {
    std::uint64_t before = 0;
    std::uint64_t sum = 0;
    std::size_t passed = 0;
    for (std::size_t i = 0; i < kChildren; ++i) {
        sum += words[i] & mask;
        // Sums only grow, so the sums that do not pass the point come first.
        const bool below = sum <= point;
        passed += below ? 1 : 0;
        before = below ? sum : before;
    }
    point -= before;
    return passed;
}
#endif

constexpr NodeSums kSums{sum, find};
#else
constexpr NodeSums kSums{};
#endif

}  // namespace

extern const Level PENSTOCK_LEVEL;
const Level PENSTOCK_LEVEL{PENSTOCK_NAME(PENSTOCK_LEVEL), random_words, kSums};

}  // namespace penstock::replay
