// The functions of one instruction-set level, as a table. The same sources are compiled once for each level.
// Holds no state. `best_level` asks the processor once which level to use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "penstock/kernels/cells.hpp"

namespace penstock::kernels {

enum class Elementwise : std::int32_t { none, tanh, relu, elu, silu, gelu, sigmoid, exp };

enum class Distribution : std::int32_t { normal, uniform, gumbel };

// One packed linear layer.
// Wide: `weight` is [inputs, padded] and `bias` [padded]; both are zero beyond `outputs`.
// Narrow (few outputs): `weight` is [outputs, depth], zero beyond `inputs`; `bias` is [outputs].
struct Linear {
    std::int32_t inputs;
    std::int32_t outputs;
    std::int32_t padded;  // outputs rounded up to the level's width
    std::int32_t depth;   // inputs rounded up to the level's width
    bool narrow;
    const float* weight;
    const float* bias;
    bool rectified = false;  // out is the ReLU of that
};

// c[i, :] = init[i, :] + sum over k of a(i, k) * b[k, :], with a(i, k) = a[i * a_row + k * a_step].
//
// It computes three things:
//   - a layer's outputs: init is the bias, at stride 0;
//   - the gradient of a layer's inputs: b is the transposed weight;
//   - the gradient of a layer's weight: a is read transposed, and init is c, so that chunks of rows add up.
//
// `columns` is a multiple of the width.
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
    bool rectified = false;  // c is the ReLU of that
};

// One step of Adam on [count], a multiple of the width: see penstock.ops.optimizers.
struct Adam {
    float* parameter;
    float* m;
    float* v;
    const float* gradient;
    std::size_t count;
    float scale;    // of the gradient
    float rate;     // lr * root / bias
    float epsilon;  // eps * root
    float kept;     // share of the parameter that weight decay leaves; 1: there is none
};

// One step of gradient descent with momentum on [count], a multiple of the width: see penstock.ops.optimizers.
struct Sgd {
    float* parameter;
    float* m;
    const float* gradient;
    std::size_t count;
    float scale;  // of the gradient
    float rate;
    float momentum;
};

// One step of RMSprop on [count], a multiple of the width: see penstock.ops.optimizers.
struct RmsProp {
    float* parameter;
    float* v;
    const float* gradient;
    std::size_t count;
    float scale;  // of the gradient
    float rate;
    float epsilon;
};

// One step of the cells of a recurrent layer. `size`, its cells, is a multiple of the width.
struct Cells {
    const float* sums;  // [rows, 4 size]: i, f, g, o of an LSTM; r, z and both parts of n of a GRU
    float* state;       // [rows, size], read and written: c of an LSTM, h of a GRU
    float* out;         // [rows, out_stride]: the next h
    std::ptrdiff_t out_stride;
    std::int32_t rows;
    std::int32_t size;
};

struct Noise {
    std::uint64_t seed;
    std::uint64_t step;
    const std::int64_t* lanes;  // [count]
    std::size_t count;
    std::size_t size;           // numbers for each lane
    Distribution distribution;
};

struct Level {
    const char* name;
    std::int32_t width;  // floats in one vector
    // out[r, :padded] = in[r, :] W + b, or the ReLU of that. Each row is computed by the same operations in the same order,
    // for any number of rows. Buffers may be read up to `depth` columns and written up to `padded` columns.
    void (*linear)(const Linear&, const float* in, std::ptrdiff_t in_stride, std::int32_t rows, float* out,
                   std::ptrdiff_t out_stride);
    void (*elementwise)(Elementwise, float* values, std::size_t count);
    void (*product)(const Product&);
    // See penstock.policies.LSTM and GRU.
    void (*lstm)(const Cells&);
    void (*gru)(const Cells&);
    // d *= f'(z), with y = f(z). `z` is read only for silu and gelu. `count` is a multiple of the width, here and below.
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
    void (*sgd)(const Sgd&);
    // to[i] += from[i], and to[i] += share * (from[i] - to[i]).
    void (*add)(const float* from, std::size_t count, float* to);
    void (*follow)(const float* from, std::size_t count, float share, float* to);
    // Writes out[count, size], the same bits at every level.
    void (*noise)(const Noise&, float* out);
    void (*lstm_step)(const LstmStep&);
    void (*lstm_gradient)(const LstmGradient&);
    void (*gru_step)(const GruStep&);
    void (*gru_gradient)(const GruGradient&);
};

// A layer of at most this many outputs is packed narrow: one dot product for each row is faster than a mostly empty vector.
inline constexpr std::int32_t kNarrowOutputs = 4;

// Every level that this processor can run, slowest first.
std::span<const Level* const> levels();

// The fastest of these levels, or the one called `name`. Throws std::invalid_argument if this processor lacks it.
const Level& best_level();
const Level& level(const char* name);

}  // namespace penstock::kernels
