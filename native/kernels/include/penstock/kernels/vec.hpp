// One vector of floats at the width of the level that is compiled, by the compiler's vector extension. Arithmetic only.
// All names have internal linkage, so that the linker cannot mix the copies of different levels.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

// Tests give a width by hand. The compiler then builds such vectors from those that the machine has.
#if !defined(PENSTOCK_WIDTH)
#if defined(__AVX512F__)
#define PENSTOCK_WIDTH 16
#elif defined(__AVX2__)
#define PENSTOCK_WIDTH 8
#else
#define PENSTOCK_WIDTH 4
#endif
#endif

namespace penstock::kernels {
namespace {

constexpr int kWidth = PENSTOCK_WIDTH;

typedef float Vec __attribute__((vector_size(kWidth * 4)));
typedef std::uint32_t Bits __attribute__((vector_size(kWidth * 4)));
typedef float Four __attribute__((vector_size(16)));

#define PENSTOCK_INLINE [[gnu::always_inline]] inline

PENSTOCK_INLINE Vec load(const float* from) {
    Vec value;
    __builtin_memcpy(&value, from, sizeof(value));
    return value;
}

PENSTOCK_INLINE void store(float* to, Vec value) { __builtin_memcpy(to, &value, sizeof(value)); }

// Subtracting zero leaves every number as it is, so that the compiler keeps only the broadcast. Adding zero would change
// minus zero.
PENSTOCK_INLINE Vec all(float value) { return value - Vec{}; }

// Contraction is off in the build. A fused product is written by name where the level has one. So a row's bits do not
// depend on how the compiler transforms the loop around it.
PENSTOCK_INLINE Vec fma(Vec a, Vec b, Vec c) {
#if PENSTOCK_WIDTH == 16 && defined(__AVX512F__)
    return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif PENSTOCK_WIDTH == 8 && defined(__FMA__)
    return (Vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif PENSTOCK_WIDTH == 4 && defined(__aarch64__)
    return (Vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

// A NaN in `value` gives NaN in both functions. x86's minimum and maximum return the second operand unless the first is
// smaller or larger; the plain form says the same. gcc 12 does not turn the plain form into that one instruction. At the
// unmasked 512-bit forms it warns about its own header.
PENSTOCK_INLINE Vec at_most(Vec limit, Vec value) {
#if PENSTOCK_WIDTH == 16 && defined(__AVX512F__)
    return (Vec)_mm512_maskz_min_ps(0xFFFF, (__m512)limit, (__m512)value);
#elif PENSTOCK_WIDTH == 8 && defined(__AVX2__)
    return (Vec)_mm256_min_ps((__m256)limit, (__m256)value);
#elif PENSTOCK_WIDTH == 4 && defined(__x86_64__)
    return (Vec)_mm_min_ps((__m128)limit, (__m128)value);
#else
    return limit < value ? limit : value;
#endif
}

PENSTOCK_INLINE Vec at_least(Vec limit, Vec value) {
#if PENSTOCK_WIDTH == 16 && defined(__AVX512F__)
    return (Vec)_mm512_maskz_max_ps(0xFFFF, (__m512)limit, (__m512)value);
#elif PENSTOCK_WIDTH == 8 && defined(__AVX2__)
    return (Vec)_mm256_max_ps((__m256)limit, (__m256)value);
#elif PENSTOCK_WIDTH == 4 && defined(__x86_64__)
    return (Vec)_mm_max_ps((__m128)limit, (__m128)value);
#else
    return limit > value ? limit : value;
#endif
}

PENSTOCK_INLINE Vec root(Vec value) {
#if PENSTOCK_WIDTH == 16 && defined(__AVX512F__)
    return (Vec)_mm512_maskz_sqrt_ps(0xFFFF, (__m512)value);
#elif PENSTOCK_WIDTH == 8 && defined(__AVX2__)
    return (Vec)_mm256_sqrt_ps((__m256)value);
#else
    for (int i = 0; i < kWidth; ++i) value[i] = __builtin_sqrtf(value[i]);
    return value;
#endif
}

// Pairwise, in a fixed order: numbers that lie half a vector apart are added, until one is left. In registers: a loop over
// the numbers goes through memory at each halving.
PENSTOCK_INLINE float sum(Vec value) {
#if PENSTOCK_WIDTH == 16
    const auto eight = __builtin_shufflevector(value, value, 0, 1, 2, 3, 4, 5, 6, 7) +
                       __builtin_shufflevector(value, value, 8, 9, 10, 11, 12, 13, 14, 15);
    const Four four = __builtin_shufflevector(eight, eight, 0, 1, 2, 3) + __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
#elif PENSTOCK_WIDTH == 8
    const Four four = __builtin_shufflevector(value, value, 0, 1, 2, 3) + __builtin_shufflevector(value, value, 4, 5, 6, 7);
#else
    const Four four = value;
#endif
    const Four two = four + __builtin_shufflevector(four, four, 2, 3, 2, 3);
    return two[0] + two[1];
}

}  // namespace
}  // namespace penstock::kernels
