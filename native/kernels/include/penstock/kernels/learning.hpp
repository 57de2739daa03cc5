// What a gradient step adds to a forward pass: slopes of activations, sums over rows, Adam.
// Counts are multiples of the width; what pads them is zero and stays zero.
#pragma once

#include "penstock/kernels/elementwise.hpp"

namespace penstock::kernels {
namespace {

// f'(z) from y = f(z), or from z where y does not tell.
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

void add_rows(const float* from, std::ptrdiff_t stride, std::int32_t rows, std::int32_t columns, float* to) {
    for (std::int32_t c = 0; c < columns; c += kWidth) {
        Vec total = load(to + c);
        for (std::int32_t r = 0; r < rows; ++r) total += load(from + r * stride + c);
        store(to + c, total);
    }
}

void transpose(const float* from, std::ptrdiff_t from_stride, std::int32_t rows, std::int32_t columns, float* to,
               std::ptrdiff_t to_stride) {
    constexpr std::int32_t block = 16;  // a cache line of floats, so that each line is filled while it is at hand
    for (std::int32_t row = 0; row < rows; row += block) {
        const std::int32_t last = row + block < rows ? row + block : rows;
        for (std::int32_t c = 0; c < columns; ++c)
            for (std::int32_t r = row; r < last; ++r) to[c * to_stride + r] = from[r * from_stride + c];
    }
}

double squares(const float* values, std::size_t count) {
    // A few thousand floats at a time, so that a large sum does not swallow small squares.
    constexpr std::size_t block = 2048;
    double total = 0.0;
    for (std::size_t start = 0; start < count; start += block) {
        Vec sums[2] = {};
        const std::size_t end = count < start + block ? count : start + block;
        for (std::size_t i = start; i < end; i += kWidth) {
            Vec& part = sums[i / kWidth % 2];
            part = fma(load(values + i), load(values + i), part);
        }
        total += static_cast<double>(sum(sums[0] + sums[1]));
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
        store(step.parameter + i, load(step.parameter + i) - m * step.rate / (root(v) + step.epsilon));
    }
}

}  // namespace
}  // namespace penstock::kernels
