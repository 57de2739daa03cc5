// What one instruction-set level offers, as a table of functions; the same sources are compiled once per level.
// Holds no state and no choice of its own: `best_level` picks once, by what the processor says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock::kernels {

enum class Elementwise : std::int32_t { none, tanh, relu, elu, silu, gelu, sigmoid, exp };

enum class Distribution : std::int32_t { normal, uniform, gumbel };

// One packed linear layer. Wide: `weight` is [inputs, padded], `bias` [padded], zero beyond `outputs`.
// Narrow (few outputs): `weight` is [outputs, depth], zero beyond `inputs`, and `bias` [outputs].
struct Linear {
    std::int32_t inputs;
    std::int32_t outputs;
    std::int32_t padded;  // outputs rounded up to the level's width
    std::int32_t depth;   // inputs rounded up to the level's width
    bool narrow;
    const float* weight;
    const float* bias;
};

struct Noise {
    std::uint64_t seed;
    std::uint64_t step;
    const std::int64_t* lanes;  // [count]
    std::size_t count;
    std::size_t size;           // numbers a lane
    Distribution distribution;
};

struct Level {
    const char* name;
    std::int32_t width;  // floats in one vector
    // out[r, :padded] = in[r, :] W + b. Every row is computed by the same operations in the same order, whatever
    // `rows` is. Buffers may be read up to `depth` and written up to `padded` columns.
    void (*linear)(const Linear&, const float* in, std::ptrdiff_t in_stride, std::int32_t rows, float* out,
                   std::ptrdiff_t out_stride);
    void (*elementwise)(Elementwise, float* values, std::size_t count);
    // out[count, size]; the same bits at every level.
    void (*noise)(const Noise&, float* out);
};

// A layer of at most this many outputs is packed narrow: a dot product a row beats a mostly empty vector.
inline constexpr std::int32_t kNarrowOutputs = 4;

// Every level that this processor can run, slowest first.
std::span<const Level* const> levels();

// The fastest of them, or the one called `name`; throws std::invalid_argument if this processor lacks it.
const Level& best_level();
const Level& level(const char* name);

}  // namespace penstock::kernels
