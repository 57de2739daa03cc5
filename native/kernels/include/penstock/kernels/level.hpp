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

// c[i, :] = init[i, :] + sum over k of a(i, k) * b[k, :], with a(i, k) = a[i * a_row + k * a_step]. One form serves a
// layer's outputs (init is its bias, at stride 0), the gradient of its inputs (b is the transposed weight) and of its
// weight (a is read transposed; init is c, so that chunks of rows add up). `columns` is a multiple of the width.
struct Product {
    const float* a;
    std::ptrdiff_t a_row, a_step;
    const float* b;
    std::ptrdiff_t b_stride;
    const float* init;
    std::ptrdiff_t init_stride;
    float* c;
    std::ptrdiff_t c_stride;
    std::int32_t rows, depth, columns;
};

// One step of Adam on [count], a multiple of the width: see penstock.kernels.update.
struct Adam {
    float* parameter;
    float* m;
    float* v;
    const float* gradient;
    std::size_t count;
    float scale;    // of the gradient
    float rate;     // lr * root / bias
    float epsilon;  // eps * root
};

// One step of RMSprop on [count], a multiple of the width: see penstock.kernels.update.
struct RmsProp {
    float* parameter;
    float* v;
    const float* gradient;
    std::size_t count;
    float scale;  // of the gradient
    float rate;
    float epsilon;
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
    void (*product)(const Product&);
    // d *= f'(z), with y = f(z); `z` is read for silu and gelu alone. `count` is a multiple of the width, as below.
    void (*slope)(Elementwise, const float* z, const float* y, float* d, std::size_t count);
    // to[c] += sum over r of from[r, c].
    void (*add_rows)(const float* from, std::ptrdiff_t stride, std::int32_t rows, std::int32_t columns, float* to);
    // to[c, r] = from[r, c] for [rows, columns].
    void (*transpose)(const float* from, std::ptrdiff_t from_stride, std::int32_t rows, std::int32_t columns, float* to,
                      std::ptrdiff_t to_stride);
    // The sum of squares, in a fixed order.
    double (*squares)(const float* values, std::size_t count);
    void (*adam)(const Adam&);
    void (*rmsprop)(const RmsProp&);
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
