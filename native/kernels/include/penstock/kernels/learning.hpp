// The parts of a gradient step that a forward pass does not have: slopes of activations, sums over rows, optimizers.
// Counts are multiples of the width. The padding is zero and stays zero.
#pragma once

#include "penstock/kernels/elementwise.hpp"

namespace penstock::kernels {
namespace {

// f'(z), computed from y = f(z); from z where y does not determine it.
template <Elementwise kind>
PENSTOCK_INLINE Vec slope_of(Vec z, Vec y) {
    if constexpr (kind == Elementwise::tanh) return fma(-y, y, all(1.0F));
    if constexpr (kind == Elementwise::relu) return y > 0.0F ? all(1.0F) : all(0.0F);
    if constexpr (kind == Elementwise::elu) return y > 0.0F ? all(1.0F) : y + 1.0F;
    if constexpr (kind == Elementwise::sigmoid) return fma(-y, y, y);
    if constexpr (kind == Elementwise::silu) {
        const Vec s = sigmoid(z);
        return fma(y, 1.0F - s, s);
    }
    if constexpr (kind == Elementwise::gelu) {
        const Vec density = exp(z * z * -0.5F) * 0.398942280F;
        return fma(z, density, fma(erf(z * 0.70710678F), all(0.5F), all(0.5F)));
    }
    return all(1.0F);
}

template <Elementwise kind>
void slope_all(const float* z, const float* y, float* d, std::size_t count) {
    constexpr bool reads_z = kind == Elementwise::silu || kind == Elementwise::gelu;
    for (std::size_t i = 0; i < count; i += kWidth)
        store(d + i, load(d + i) * slope_of<kind>(reads_z ? load(z + i) : Vec{}, load(y + i)));
}

void slope(Elementwise kind, const float* z, const float* y, float* d, std::size_t count) {
    switch (kind) {
        case Elementwise::tanh: return slope_all<Elementwise::tanh>(z, y, d, count);
        case Elementwise::relu: return slope_all<Elementwise::relu>(z, y, d, count);
        case Elementwise::elu: return slope_all<Elementwise::elu>(z, y, d, count);
        case Elementwise::silu: return slope_all<Elementwise::silu>(z, y, d, count);
        case Elementwise::gelu: return slope_all<Elementwise::gelu>(z, y, d, count);
        case Elementwise::sigmoid: return slope_all<Elementwise::sigmoid>(z, y, d, count);
        case Elementwise::none:
        case Elementwise::exp: return;
    }
}

template <int vectors>
PENSTOCK_INLINE void add_columns(const float* from, std::ptrdiff_t stride, std::int32_t rows, float* to) {
    Vec totals[vectors];
    for (int v = 0; v < vectors; ++v) totals[v] = load(to + v * kWidth);
    for (std::int32_t r = 0; r < rows; ++r, from += stride)
        for (int v = 0; v < vectors; ++v) totals[v] += load(from + v * kWidth);
    for (int v = 0; v < vectors; ++v) store(to + v * kWidth, totals[v]);
}

void add_rows(const float* from, std::ptrdiff_t stride, std::int32_t rows, std::int32_t columns, float* to) {
    std::int32_t c = 0;
    for (; c + 4 * kWidth <= columns; c += 4 * kWidth) add_columns<4>(from + c, stride, rows, to + c);
    for (; c < columns; c += kWidth) add_columns<1>(from + c, stride, rows, to + c);
}

PENSTOCK_INLINE void transpose_four(const float* from, std::ptrdiff_t from_stride, float* to, std::ptrdiff_t to_stride) {
    Four row[4];
    for (int r = 0; r < 4; ++r) __builtin_memcpy(&row[r], from + r * from_stride, sizeof(Four));
    const Four low01 = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
    const Four low23 = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
    const Four high01 = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
    const Four high23 = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
    const Four column[4] = {__builtin_shufflevector(low01, low23, 0, 1, 4, 5), __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
                            __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
                            __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
    for (int c = 0; c < 4; ++c) __builtin_memcpy(to + c * to_stride, &column[c], sizeof(Four));
}

// Transposes blocks of four by four in registers, and the remaining numbers one by one. All rows of sixteen columns, then
// those of the next: so each cache line of `from` is read once, and those of `to` stay in the first cache until they are full.
void transpose(const float* from, std::ptrdiff_t from_stride, std::int32_t rows, std::int32_t columns, float* to,
               std::ptrdiff_t to_stride) {
    const std::int32_t whole_rows = rows / 4 * 4;
    const std::int32_t whole_columns = columns / 4 * 4;
    constexpr std::int32_t line = 16;
    for (std::int32_t first = 0; first < whole_columns; first += line)
        for (std::int32_t r = 0; r < whole_rows; r += 4)
            for (std::int32_t c = first; c < whole_columns && c < first + line; c += 4)
                transpose_four(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
    for (std::int32_t c = 0; c < columns; ++c)
        for (std::int32_t r = c < whole_columns ? whole_rows : 0; r < rows; ++r) to[c * to_stride + r] = from[r * from_stride + c];
}

double squares(const float* values, std::size_t count) {
    // A few thousand floats at a time, so that a large sum does not swallow small squares. Four chains, so that no sum
    // waits for another.
    constexpr std::size_t block = 2048;
    double total = 0.0;
    for (std::size_t start = 0; start < count; start += block) {
        Vec sums[4] = {};
        const std::size_t end = count < start + block ? count : start + block;
        std::size_t i = start;
        for (; i + 4 * kWidth <= end; i += 4 * kWidth)
            for (std::size_t chain = 0; chain < 4; ++chain) {
                const Vec value = load(values + i + chain * kWidth);
                sums[chain] = fma(value, value, sums[chain]);
            }
        for (; i < end; i += kWidth) sums[0] = fma(load(values + i), load(values + i), sums[0]);
        total += static_cast<double>(sum((sums[0] + sums[1]) + (sums[2] + sums[3])));
    }
    return total;
}

void adam(const Adam& step) {
    for (std::size_t i = 0; i < step.count; i += kWidth) {
        const Vec gradient = load(step.gradient + i) * step.scale;
        Vec m = load(step.m + i);
        Vec v = load(step.v + i);
        m = fma(all(0.1F), gradient - m, m);
        v = fma(all(0.001F), fma(gradient, gradient, -v), v);
        store(step.m + i, m);
        store(step.v + i, v);
        store(step.parameter + i, load(step.parameter + i) * step.kept - m * step.rate / (root(v) + step.epsilon));
    }
}

// to[i] += from[i].
void add(const float* from, std::size_t count, float* to) {
    for (std::size_t i = 0; i < count; i += kWidth) store(to + i, load(to + i) + load(from + i));
}

// to[i] += share * (from[i] - to[i]).
void follow(const float* from, std::size_t count, float share, float* to) {
    for (std::size_t i = 0; i < count; i += kWidth) {
        const Vec at = load(to + i);
        store(to + i, fma(all(share), load(from + i) - at, at));
    }
}

void sgd(const Sgd& step) {
    for (std::size_t i = 0; i < step.count; i += kWidth) {
        const Vec m = fma(all(step.momentum), load(step.m + i), load(step.gradient + i) * step.scale);
        store(step.m + i, m);
        store(step.parameter + i, load(step.parameter + i) - m * step.rate);
    }
}

void rmsprop(const RmsProp& step) {
    for (std::size_t i = 0; i < step.count; i += kWidth) {
        const Vec gradient = load(step.gradient + i) * step.scale;
        Vec v = load(step.v + i);
        v = fma(all(0.01F), fma(gradient, gradient, -v), v);
        store(step.v + i, v);
        store(step.parameter + i, load(step.parameter + i) - gradient * step.rate / root(v + step.epsilon));
    }
}

}  // namespace
}  // namespace penstock::kernels
