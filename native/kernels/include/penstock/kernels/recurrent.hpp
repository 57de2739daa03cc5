// The elementwise part of recurrent layers: from the sums of their gates to the next state.
// Does not compute the sums: they are products of matrices.
#pragma once

#include "penstock/kernels/elementwise.hpp"

namespace penstock::kernels {
namespace {

// Calls step(sums, state, out) for every vector of cells. The sums of its four parts lie `size` numbers apart.
template <typename Step>
PENSTOCK_INLINE void each_cell(const Cells& cells, Step&& step) {
    for (std::int32_t r = 0; r < cells.rows; ++r) {
        const float* sums = cells.sums + std::ptrdiff_t{r} * 4 * cells.size;
        float* state = cells.state + std::ptrdiff_t{r} * cells.size;
        float* out = cells.out + r * cells.out_stride;
        for (std::int32_t u = 0; u < cells.size; u += kWidth) step(sums + u, state + u, out + u);
    }
}

void lstm(const Cells& cells) {
    const std::ptrdiff_t size = cells.size;
    each_cell(cells, [size](const float* sums, float* state, float* out) {
        const Vec i = sigmoid(load(sums));
        const Vec f = sigmoid(load(sums + size));
        const Vec g = tanh(load(sums + 2 * size));
        const Vec o = sigmoid(load(sums + 3 * size));
        const Vec c = fma(f, load(state), i * g);
        store(state, c);
        store(out, o * tanh(c));
    });
}

void gru(const Cells& cells) {
    const std::ptrdiff_t size = cells.size;
    each_cell(cells, [size](const float* sums, float* state, float* out) {
        const Vec r = sigmoid(load(sums));
        const Vec z = sigmoid(load(sums + size));
        const Vec n = tanh(fma(r, load(sums + 3 * size), load(sums + 2 * size)));
        const Vec h = fma(z, load(state) - n, n);
        store(state, h);
        store(out, h);
    });
}

}  // namespace
}  // namespace penstock::kernels
