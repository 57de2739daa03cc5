// Counter-based noise: normal, uniform and Gumbel numbers, made from words of Philox. The key is the seed, the counter is
// (block, lane, step).
// Uses no libm. Every IEEE machine computes sums, products, quotients and square roots of doubles exactly alike, so the
// numbers are the same on all machines.
#pragma once

#include "penstock/kernels/level.hpp"
#include "penstock/kernels/philox.hpp"
#include "penstock/kernels/vec.hpp"

namespace penstock::kernels {
namespace {

// Natural logarithm of a positive normal double, to 1e-13: m 2^e with m in [sqrt(1/2), sqrt(2)), 2 atanh((m-1)/(m+1)).
PENSTOCK_INLINE double log(double x) {
    std::uint64_t bits;
    __builtin_memcpy(&bits, &x, sizeof(x));
    const std::uint64_t offset = bits - 0x3FE6A09E667F3BCDULL;  // the bits of sqrt(1/2)
    // The exponent is made a small non-negative number, because its conversion is cheap in every instruction set.
    const auto exponent = static_cast<std::int32_t>(static_cast<std::uint32_t>((offset >> 52) + 2048U) & 4095U) - 2048;
    const std::uint64_t mantissa = bits - (offset & 0xFFF0000000000000ULL);
    double m;
    __builtin_memcpy(&m, &mantissa, sizeof(m));
    const double s = (m - 1.0) / (m + 1.0);
    const double z = s * s;
    double p = 0.09804047819876527;
    p = p * z + 0.11087124955038745;
    p = p * z + 0.14286083072937864;
    p = p * z + 0.1999999744591619;
    p = p * z + 0.3333333333978963;
    p = p * z + 0.9999999999999736;
    return 2.0 * s * p + static_cast<double>(exponent) * 0.6931471805599453;
}

// A number in (0, 1), never 0 or 1.
PENSTOCK_INLINE double open_unit(std::uint32_t word) { return (static_cast<double>(word) + 0.5) * 0x1p-32; }

// Box and Muller 1958: two words give two independent standard normals. The angle is reduced to an eighth of a turn.
PENSTOCK_INLINE void normal_pair(std::uint32_t a, std::uint32_t b, float& first, float& second) {
    const double radius = __builtin_sqrt(-2.0 * log(open_unit(a)));
    const auto quadrant = (b + 0x20000000U) >> 30;
    const double t = static_cast<double>(static_cast<std::int32_t>(b - (quadrant << 30))) * 0x1p-32;
    const double z = t * t;
    double s = -14.916565118819118;
    s = s * z + 42.05556925594499;
    s = s * z - 76.70583445845129;
    s = s * z + 81.60524918348393;
    s = s * z - 41.34170224027578;
    s = (s * z + 6.28318530717956) * t;
    double c = -26.058123753882793;
    c = c * z + 60.23818359301454;
    c = c * z - 85.45676493719407;
    c = c * z + 64.93939383134831;
    c = c * z - 19.739208801922548;
    c = c * z + 0.9999999999999444;
    const bool swap = (quadrant & 1U) != 0U;
    const double x = swap ? s : c;
    const double y = swap ? c : s;
    const double sign_x = ((quadrant + 1U) & 2U) != 0U ? -radius : radius;
    const double sign_y = (quadrant & 2U) != 0U ? -radius : radius;
    first = static_cast<float>(sign_x * x);
    second = static_cast<float>(sign_y * y);
}

// Uses the first `used` of each counter's four words.
template <Distribution distribution>
PENSTOCK_INLINE void transform(const Words& words, int used, float (&out)[4][kBatch]) {
    if constexpr (distribution == Distribution::normal) {
        for (int pair = 0; pair < used; pair += 2)
            for (int i = 0; i < kBatch; ++i)
                normal_pair(words.word[pair][i], words.word[pair + 1][i], out[pair][i], out[pair + 1][i]);
    } else {
        for (int k = 0; k < used; ++k)
            for (int i = 0; i < kBatch; ++i) {
                if constexpr (distribution == Distribution::uniform)
                    out[k][i] = static_cast<float>(words.word[k][i] >> 8) * 0x1p-24F;
                else
                    out[k][i] = static_cast<float>(-log(-log(open_unit(words.word[k][i]))));
            }
    }
}

template <Distribution distribution>
void generate(const Noise& noise, float* out) {
    const std::size_t blocks = (noise.size + 3) / 4;
    const std::size_t counters = blocks * noise.count;
    const int used = noise.size < 4 ? static_cast<int>(noise.size) : 4;
    for (std::size_t start = 0; start < counters; start += kBatch) {
        Words words;
        const std::size_t batch = counters - start < kBatch ? counters - start : kBatch;
        for (std::size_t i = 0; i < kBatch; ++i) {
            const std::size_t counter = start + (i < batch ? i : 0);
            words.word[0][i] = static_cast<std::uint32_t>(counter % blocks);
            words.word[1][i] = static_cast<std::uint32_t>(noise.lanes[counter / blocks]);
            words.word[2][i] = static_cast<std::uint32_t>(noise.step);
            words.word[3][i] = static_cast<std::uint32_t>(noise.step >> 32);
        }
        philox(words, noise.seed);
        float numbers[4][kBatch];
        transform<distribution>(words, used, numbers);
        for (std::size_t i = 0; i < batch; ++i) {
            const std::size_t lane = (start + i) / blocks;
            const std::size_t first = (start + i) % blocks * 4;
            const std::size_t last = first + 4 < noise.size ? first + 4 : noise.size;
            for (std::size_t k = first; k < last; ++k) out[lane * noise.size + k] = numbers[k - first][i];
        }
    }
}

void generate_noise(const Noise& noise, float* out) {
    switch (noise.distribution) {
        case Distribution::normal: return generate<Distribution::normal>(noise, out);
        case Distribution::uniform: return generate<Distribution::uniform>(noise, out);
        case Distribution::gumbel: return generate<Distribution::gumbel>(noise, out);
    }
}

}  // namespace
}  // namespace penstock::kernels
