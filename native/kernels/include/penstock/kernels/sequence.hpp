// One step of an LSTM or a GRU, and its gradient, behind the product with the recurrent weights.
// Knows no time and no reset. Works lane by lane, so a lane's bits do not depend on the other lanes.
#pragma once

#include "penstock/kernels/cells.hpp"
#include "penstock/kernels/elementwise.hpp"

namespace penstock::kernels {
namespace {

// The first numbers of a vector; zero behind them.
PENSTOCK_INLINE Vec load_some(const float* from, std::int32_t count) {
    if (count >= kWidth) return load(from);
    float some[kWidth] = {};
    for (std::int32_t i = 0; i < count; ++i) some[i] = from[i];
    return load(some);
}

PENSTOCK_INLINE void store_some(float* to, Vec value, std::int32_t count) {
    if (count >= kWidth) return store(to, value);
    for (std::int32_t i = 0; i < count; ++i) to[i] = value[i];
}

// f'(z) from y = f(z).
PENSTOCK_INLINE Vec sigmoid_slope(Vec y) { return fma(-y, y, y); }
PENSTOCK_INLINE Vec tanh_slope(Vec y) { return fma(-y, y, all(1.0F)); }

void lstm_step(const LstmStep& step) {
    const auto [lanes, size, padded] = step.of;
    for (std::int32_t lane = 0; lane < lanes; ++lane) {
        const float* own = step.own + std::ptrdiff_t{4} * lane * padded;
        const float* x = step.x.row(lane);
        float* h = step.h + std::ptrdiff_t{lane} * padded;
        float* c = step.c + std::ptrdiff_t{lane} * padded;
        float* output = step.output.row(lane);
        float* gates = step.gates + std::ptrdiff_t{4} * lane * size;
        float* cells = step.cells + std::ptrdiff_t{lane} * size;
        for (std::int32_t u = 0; u < size; u += kWidth) {
            const std::int32_t left = size - u;
            const Vec i = sigmoid(load(own + u) + load_some(x + u, left));
            const Vec f = sigmoid(load(own + padded + u) + load_some(x + size + u, left));
            const Vec g = tanh(load(own + 2 * padded + u) + load_some(x + 2 * size + u, left));
            const Vec o = sigmoid(load(own + 3 * padded + u) + load_some(x + 3 * size + u, left));
            const Vec cell = fma(f, load(c + u), i * g);
            const Vec hidden = o * tanh(cell);
            store(c + u, cell);
            store(h + u, hidden);
            store_some(output + u, hidden, left);
            store_some(cells + u, cell, left);
            store_some(gates + u, i, left);
            store_some(gates + size + u, f, left);
            store_some(gates + 2 * size + u, g, left);
            store_some(gates + 3 * size + u, o, left);
        }
    }
}

void lstm_gradient(const LstmGradient& step) {
    const auto [lanes, size, padded] = step.of;
    for (std::int32_t lane = 0; lane < lanes; ++lane) {
        const float* gates = step.gates + std::ptrdiff_t{4} * lane * size;
        const float* cells = step.cells + std::ptrdiff_t{lane} * size;
        const float* before = step.before + std::ptrdiff_t{lane} * padded;
        const float* d_output = step.d_output.row(lane);
        const float* d_h = step.d_h + std::ptrdiff_t{lane} * padded;
        float* d_c = step.d_c + std::ptrdiff_t{lane} * padded;
        float* d_x = step.d_x.row(lane);
        float* d = step.d + std::ptrdiff_t{4} * lane * padded;
        for (std::int32_t u = 0; u < size; u += kWidth) {
            const std::int32_t left = size - u;
            const Vec i = load_some(gates + u, left);
            const Vec f = load_some(gates + size + u, left);
            const Vec g = load_some(gates + 2 * size + u, left);
            const Vec o = load_some(gates + 3 * size + u, left);
            const Vec y = tanh(load_some(cells + u, left));
            const Vec hidden = load(d_h + u) + load_some(d_output + u, left);
            const Vec cell = fma(hidden * o, tanh_slope(y), load(d_c + u));
            const Vec parts[4] = {cell * g * sigmoid_slope(i), cell * load(before + u) * sigmoid_slope(f),
                                  cell * i * tanh_slope(g), hidden * y * sigmoid_slope(o)};
            store(d_c + u, cell * f);
            for (std::int32_t gate = 0; gate < 4; ++gate) {
                store(d + gate * padded + u, parts[gate]);
                store_some(d_x + gate * size + u, parts[gate], left);
            }
        }
    }
}

void gru_step(const GruStep& step) {
    const auto [lanes, size, padded] = step.of;
    for (std::int32_t lane = 0; lane < lanes; ++lane) {
        const float* own = step.own + std::ptrdiff_t{3} * lane * padded;
        const float* x = step.x.row(lane);
        float* h = step.h + std::ptrdiff_t{lane} * padded;
        float* output = step.output.row(lane);
        float* gates = step.gates + std::ptrdiff_t{4} * lane * size;
        for (std::int32_t u = 0; u < size; u += kWidth) {
            const std::int32_t left = size - u;
            const Vec own_n = load(own + 2 * padded + u);
            const Vec r = sigmoid(load(own + u) + load_some(x + u, left));
            const Vec z = sigmoid(load(own + padded + u) + load_some(x + size + u, left));
            const Vec n = tanh(fma(r, own_n, load_some(x + 2 * size + u, left)));
            const Vec hidden = fma(z, load(h + u) - n, n);
            store(h + u, hidden);
            store_some(output + u, hidden, left);
            store_some(gates + u, r, left);
            store_some(gates + size + u, z, left);
            store_some(gates + 2 * size + u, n, left);
            store_some(gates + 3 * size + u, own_n, left);
        }
    }
}

void gru_gradient(const GruGradient& step) {
    const auto [lanes, size, padded] = step.of;
    for (std::int32_t lane = 0; lane < lanes; ++lane) {
        const float* gates = step.gates + std::ptrdiff_t{4} * lane * size;
        const float* before = step.before + std::ptrdiff_t{lane} * padded;
        const float* d_output = step.d_output.row(lane);
        float* d_h = step.d_h + std::ptrdiff_t{lane} * padded;
        float* d_x = step.d_x.row(lane);
        float* d = step.d + std::ptrdiff_t{3} * lane * padded;
        for (std::int32_t u = 0; u < size; u += kWidth) {
            const std::int32_t left = size - u;
            const Vec r = load_some(gates + u, left);
            const Vec z = load_some(gates + size + u, left);
            const Vec n = load_some(gates + 2 * size + u, left);
            const Vec own_n = load_some(gates + 3 * size + u, left);
            const Vec hidden = load(d_h + u) + load_some(d_output + u, left);
            const Vec d_n = hidden * (1.0F - z) * tanh_slope(n);
            const Vec d_z = hidden * (load(before + u) - n) * sigmoid_slope(z);
            const Vec d_r = d_n * own_n * sigmoid_slope(r);
            store(d_h + u, hidden * z);
            store(d + u, d_r);
            store(d + padded + u, d_z);
            store(d + 2 * padded + u, d_n * r);
            store_some(d_x + u, d_r, left);
            store_some(d_x + size + u, d_z, left);
            store_some(d_x + 2 * size + u, d_n, left);
        }
    }
}

}  // namespace
}  // namespace penstock::kernels
