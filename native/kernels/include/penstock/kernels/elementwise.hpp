// The elementwise functions of one vector: exp, tanh, erf, and the activations that are made of them.
// Error bounds are relative unless a comment says otherwise. They hold over all ranges of tests/kernels/test_elementwise.py.
// NaN and infinities raise no floating point errors: NaN gives NaN, infinities saturate.
#pragma once

#include "penstock/kernels/level.hpp"
#include "penstock/kernels/vec.hpp"

namespace penstock::kernels {
namespace {

// exp on [-87.3, 88.3], clamped outside. It is 2^n e^r with |r| <= ln(2) / 2; e^r is a polynomial of degree 6 (Chebyshev
// fit, error 1.0e-8 before rounding). The error is at most 2 ulp.
PENSTOCK_INLINE Vec exp(Vec x) {
    constexpr float magic = 12582912.0F;  // 1.5 * 2^23: adding it leaves the rounded integer in the low bits
    x = at_most(all(88.3F), at_least(all(-87.3F), x));
    const Vec shifted = fma(x, all(1.44269504F), all(magic));
    const Vec n = shifted - magic;
    // ln 2 in two parts. The first part has so few bits that n * part is exact.
    Vec r = fma(n, all(-0.693359375F), x);
    r = fma(n, all(2.12194440e-4F), r);
    Vec p = fma(all(1.3926183587713494e-3F), r, all(8.363179052722578e-3F));
    p = fma(p, r, all(4.1666554617204574e-2F));
    p = fma(p, r, all(1.6666576989698775e-1F));
    p = fma(p, r, all(0.5F));
    const Vec y = fma(r * r, p, r) + 1.0F;
    const Bits scale = ((Bits)shifted << 23) + (127U << 23);
    return y * (Vec)scale;
}

// tanh as x P(x^2) / Q(x^2) on [-9.01, 9.01], and +-1 beyond. The fit has the least maximum relative error: 6e-8 before
// rounding, at most 4e-7 after.
PENSTOCK_INLINE Vec tanh(Vec x) {
    x = at_most(all(9.01F), at_least(all(-9.01F), x));
    const Vec z = x * x;
    Vec p = fma(all(1.8208988673841207e-11F), z, all(-1.276220107780276e-08F));
    p = fma(p, z, all(9.26130278161776e-06F));
    p = fma(p, z, all(0.0029200898878275817F));
    p = fma(p, z, all(0.12918603037761978F));
    p = fma(p, z, all(0.9999999405468468F));
    Vec q = fma(all(0.00022800739641884758F), z, all(0.02376041667259786F));
    q = fma(q, z, all(0.46251886417395505F));
    q = fma(q, z, all(1.0F));
    const Vec y = x * p / q;
    return at_most(all(1.0F), at_least(all(-1.0F), y));
}

// erf by the same kind of fit on [-3.9, 3.9]. The error is 1.7e-8 before rounding, at most 5e-7 after.
PENSTOCK_INLINE Vec erf(Vec x) {
    x = at_most(all(3.9F), at_least(all(-3.9F), x));
    const Vec z = x * x;
    Vec p = fma(all(2.06646245102653e-06F), z, all(0.0002850629446975131F));
    p = fma(p, z, all(0.003738389338257193F));
    p = fma(p, z, all(0.05266821797103807F));
    p = fma(p, z, all(0.18966785625819746F));
    p = fma(p, z, all(1.128379147629034F));
    Vec q = fma(all(3.826994802997693e-05F), z, all(0.0011573861936210416F));
    q = fma(q, z, all(0.01491436483659224F));
    q = fma(q, z, all(0.11381938307290189F));
    q = fma(q, z, all(0.5014215427334108F));
    q = fma(q, z, all(1.0F));
    return x * p / q;
}

// The error bound is relative, so that silu of a large negative number goes to zero.
PENSTOCK_INLINE Vec sigmoid(Vec x) { return 1.0F / (exp(-x) + 1.0F); }

// Zero below -5.5, where gelu is above -1.1e-7. There the product with x would magnify the rounding error of 1 + erf.
PENSTOCK_INLINE Vec gelu(Vec x) {
    const Vec y = x * fma(erf(x * 0.70710678F), all(0.5F), all(0.5F));
    return x < -5.5F ? all(0.0F) : y;
}

template <Elementwise kind>
PENSTOCK_INLINE Vec apply(Vec x) {
    if constexpr (kind == Elementwise::tanh) return tanh(x);
    if constexpr (kind == Elementwise::relu) return at_least(all(0.0F), x);
    if constexpr (kind == Elementwise::elu) return x > 0.0F ? x : exp(at_most(all(0.0F), x)) - 1.0F;
    if constexpr (kind == Elementwise::silu) return x * sigmoid(x);
    if constexpr (kind == Elementwise::gelu) return gelu(x);
    if constexpr (kind == Elementwise::sigmoid) return sigmoid(x);
    if constexpr (kind == Elementwise::exp) return exp(x);
    return x;
}

template <Elementwise kind>
void apply_all(float* values, std::size_t count) {
    constexpr std::size_t width = kWidth;
    std::size_t i = 0;
    for (; i + width <= count; i += width) store(values + i, apply<kind>(load(values + i)));
    if (i < count) {
        float rest[kWidth] = {};
        __builtin_memcpy(rest, values + i, (count - i) * sizeof(float));
        store(rest, apply<kind>(load(rest)));
        __builtin_memcpy(values + i, rest, (count - i) * sizeof(float));
    }
}

void elementwise(Elementwise kind, float* values, std::size_t count) {
    switch (kind) {
        case Elementwise::none: return;
        case Elementwise::tanh: return apply_all<Elementwise::tanh>(values, count);
        case Elementwise::relu: return apply_all<Elementwise::relu>(values, count);
        case Elementwise::elu: return apply_all<Elementwise::elu>(values, count);
        case Elementwise::silu: return apply_all<Elementwise::silu>(values, count);
        case Elementwise::gelu: return apply_all<Elementwise::gelu>(values, count);
        case Elementwise::sigmoid: return apply_all<Elementwise::sigmoid>(values, count);
        case Elementwise::exp: return apply_all<Elementwise::exp>(values, count);
    }
}

}  // namespace
}  // namespace penstock::kernels
