// y = x W + b for a few rows at a time, in register tiles of rows x vectors.
// Does not apply activations. Every output is one chain of products in the order of the inputs, so a row's bits do not
// depend on the tile that it falls into.
#pragma once

#include "penstock/kernels/level.hpp"
#include "penstock/kernels/vec.hpp"

namespace penstock::kernels {
namespace {

template <int rows, int vectors>
PENSTOCK_INLINE void tile(const Linear& layer, const float* in, std::ptrdiff_t in_stride, float* out,
                          std::ptrdiff_t out_stride) {
    Vec sums[rows][vectors];
    for (int r = 0; r < rows; ++r)
        for (int v = 0; v < vectors; ++v) sums[r][v] = load(layer.bias + v * kWidth);
    const float* weight = layer.weight;
    for (std::int32_t k = 0; k < layer.inputs; ++k, weight += layer.padded) {
        Vec w[vectors];
        for (int v = 0; v < vectors; ++v) w[v] = load(weight + v * kWidth);
        for (int r = 0; r < rows; ++r) {
            const Vec x = all(in[r * in_stride + k]);
            for (int v = 0; v < vectors; ++v) sums[r][v] = fma(x, w[v], sums[r][v]);
        }
    }
    for (int r = 0; r < rows; ++r)
        for (int v = 0; v < vectors; ++v) store(out + r * out_stride + v * kWidth, sums[r][v]);
}

template <int rows, int vectors>
void wide_rows(const Linear& layer, const float* in, std::ptrdiff_t in_stride, float* out, std::ptrdiff_t out_stride) {
    Linear part = layer;
    std::int32_t column = 0;
    const auto advance = [&](std::int32_t columns) {
        column += columns;
        part.weight += columns;
        part.bias += columns;
    };
    while (column + vectors * kWidth <= layer.padded) {
        tile<rows, vectors>(part, in, in_stride, out + column, out_stride);
        advance(vectors * kWidth);
    }
    while (column < layer.padded) {
        tile<rows, 1>(part, in, in_stride, out + column, out_stride);
        advance(kWidth);
    }
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
        for (int r = 0; r < rows; ++r) out[r * out_stride + column] = sum(sums[r]) + layer.bias[column];
    }
}

void linear(const Linear& layer, const float* in, std::ptrdiff_t in_stride, std::int32_t rows, float* out,
            std::ptrdiff_t out_stride) {
    // 32 vector registers with AVX-512 and on arm64, 16 otherwise.
    constexpr int four = kWidth == 16 ? 4 : 2;
    constexpr int one = kWidth == 16 ? 4 : 8;
    std::int32_t r = 0;
    const auto at = [&](auto&& kernel, std::int32_t count) {
        kernel(layer, in + r * in_stride, in_stride, out + r * out_stride, out_stride);
        r += count;
    };
    if (layer.narrow) {
        while (r + 4 <= rows) at(narrow_rows<4>, 4);
        while (r < rows) at(narrow_rows<1>, 1);
        return;
    }
    while (r + 4 <= rows) at(wide_rows<4, four>, 4);
    while (r + 2 <= rows) at(wide_rows<2, 4>, 2);
    while (r < rows) at(wide_rows<1, one>, 1);
}

}  // namespace
}  // namespace penstock::kernels
