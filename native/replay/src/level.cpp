// Compiled once per instruction-set level, with PENSTOCK_LEVEL as its name. Includes no standard library code with
// external linkage: the linker keeps one copy of such code, and it might keep one that this processor cannot run.

#include "penstock/replay/level.hpp"

#include "penstock/kernels/philox.hpp"

#define PENSTOCK_TEXT(name) #name
#define PENSTOCK_NAME(name) PENSTOCK_TEXT(name)

namespace penstock::replay {
namespace {

using kernels::kBatch;

// The counter's second word is a lane where noise is drawn, so its highest bit keeps the two apart.
constexpr std::uint32_t kSampling = 0x80000000U;

void draw(const Draw& draw, const std::uint32_t* positions, std::size_t count, std::uint32_t* words) {
    for (std::size_t start = 0; start < count; start += kBatch) {
        const std::size_t batch = count - start < kBatch ? count - start : kBatch;
        kernels::Words counters;
        for (std::size_t i = 0; i < kBatch; ++i) {
            counters.word[0][i] = positions[start + (i < batch ? i : 0)];
            counters.word[1][i] = kSampling | draw.attempt;
            counters.word[2][i] = static_cast<std::uint32_t>(draw.number);
            counters.word[3][i] = static_cast<std::uint32_t>(draw.number >> 32);
        }
        kernels::philox(counters, draw.seed);
        for (std::size_t k = 0; k < 4; ++k)
            for (std::size_t i = 0; i < batch; ++i) words[k * count + start + i] = counters.word[k][i];
    }
}

// Loads of a node's children stay in order behind the load of the node itself: on x86 the processor sees to that, and
// compilers move nothing over the call. Elsewhere the tree loads them as atomics.
#if defined(__x86_64__)
constexpr std::size_t kChildren = 16;

std::uint64_t sum(const std::uint64_t* words, std::uint64_t mask) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < kChildren; ++i) sum += words[i] & mask;
    return sum;
}

std::size_t find(const std::uint64_t* words, std::uint64_t mask, std::uint64_t& point) {
    std::uint64_t before = 0;
    std::uint64_t sum = 0;
    std::size_t passed = 0;
    for (std::size_t i = 0; i < kChildren; ++i) {
        sum += words[i] & mask;
        // Sums only grow, so those that do not pass the point come first.
        const bool below = sum <= point;
        passed += below ? 1 : 0;
        before = below ? sum : before;
    }
    point -= before;
    return passed;
}

constexpr NodeSums kSums{sum, find};
#else
constexpr NodeSums kSums{};
#endif

}  // namespace

extern const Level PENSTOCK_LEVEL;
const Level PENSTOCK_LEVEL{PENSTOCK_NAME(PENSTOCK_LEVEL), draw, kSums};

}  // namespace penstock::replay
