// Products of small matrices in register tiles of rows x vectors, and y = x W + b made of them. Of activations it applies
// only a ReLU: while the numbers are in registers, it costs no pass of its own.
// Each number is one chain of products in the order of k. So a row's bits do not depend on its tile.
#pragma once

#include "penstock/kernels/level.hpp"
#include "penstock/kernels/vec.hpp"

namespace penstock::kernels {
namespace {

template <int rows, int vectors>
PENSTOCK_INLINE void tile(const Product& p) {
    Vec sums[rows][vectors];
    for (int r = 0; r < rows; ++r)
        for (int v = 0; v < vectors; ++v) sums[r][v] = load(p.init + r * p.init_stride + v * kWidth);
    const float* a = p.a;
    const float* b = p.b;
    for (std::int32_t k = 0; k < p.depth; ++k, a += p.a_step, b += p.b_stride) {
        Vec w[vectors];
        for (int v = 0; v < vectors; ++v) w[v] = load(b + v * kWidth);
        for (int r = 0; r < rows; ++r) {
            const Vec x = all(a[r * p.a_row]);
            for (int v = 0; v < vectors; ++v) sums[r][v] = fma(x, w[v], sums[r][v]);
        }
    }
    for (int r = 0; r < rows; ++r)
        for (int v = 0; v < vectors; ++v)
            store(p.c + r * p.c_stride + v * kWidth, p.rectified ? at_least(all(0.0F), sums[r][v]) : sums[r][v]);
}

// Computes `rows` rows, all columns.
template <int rows, int vectors>
void strip(const Product& whole) {
    Product part = whole;
    std::int32_t left = whole.columns;
    const auto advance = [&](std::int32_t columns) {
        part.b += columns;
        part.init += columns;
        part.c += columns;
        left -= columns;
    };
    while (left >= vectors * kWidth) {
        tile<rows, vectors>(part);
        advance(vectors * kWidth);
    }
    while (left > 0) {
        tile<rows, 1>(part);
        advance(kWidth);
    }
}

void product(const Product& whole) {
    // There are 32 vector registers with AVX-512, and 16 below. They hold the sums, one row of b and one number of a.
    // With 16 registers tiles of six rows fit as well. They were 10 % slower than tiles of four (64 x 64 x 64 on Zen 3),
    // because there is more to fill and to empty.
    constexpr int most = kWidth == 16 ? 4 : 2;
    constexpr int one = kWidth == 16 ? 4 : 8;
    Product part = whole;
    const auto take = [&](std::int32_t rows, void (*of)(const Product&)) {
        while (part.rows >= rows) {
            of(part);
            part.a += rows * part.a_row;
            part.init += rows * part.init_stride;
            part.c += rows * part.c_stride;
            part.rows -= rows;
        }
    };
    if constexpr (kWidth == 16) take(6, strip<6, most>);
    take(4, strip<4, most>);
    take(2, strip<2, 4>);
    take(1, strip<1, one>);
}

template <int rows>
PENSTOCK_INLINE void narrow_rows(const Linear& layer, const float* in, std::ptrdiff_t in_stride, float* out,
                                 std::ptrdiff_t out_stride) {
    for (std::int32_t column = 0; column < layer.outputs; ++column) {
        const float* weight = layer.weight + static_cast<std::ptrdiff_t>(column) * layer.depth;
        Vec sums[rows] = {};
        for (std::int32_t k = 0; k < layer.depth; k += kWidth) {
            const Vec w = load(weight + k);
            for (int r = 0; r < rows; ++r) sums[r] = fma(load(in + r * in_stride + k), w, sums[r]);
        }
        for (int r = 0; r < rows; ++r) {
            const float y = sum(sums[r]) + layer.bias[column];
            out[r * out_stride + column] = layer.rectified && y < 0.0F ? 0.0F : y;
        }
    }
}

void linear(const Linear& layer, const float* in, std::ptrdiff_t in_stride, std::int32_t rows, float* out,
            std::ptrdiff_t out_stride) {
    if (!layer.narrow) {
        product({in, in_stride, 1, layer.weight, layer.padded, layer.bias, 0, out, out_stride, rows, layer.inputs,
                 layer.padded, layer.rectified});
        return;
    }
    std::int32_t r = 0;
    for (; r + 4 <= rows; r += 4) narrow_rows<4>(layer, in + r * in_stride, in_stride, out + r * out_stride, out_stride);
    for (; r < rows; ++r) narrow_rows<1>(layer, in + r * in_stride, in_stride, out + r * out_stride, out_stride);
}

}  // namespace
}  // namespace penstock::kernels
