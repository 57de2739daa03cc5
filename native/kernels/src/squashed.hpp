// Actions that are sampled from a squashed Gaussian, their log-probabilities, and the gradient of both. One part of the
// rows at a time. See penstock.ops.distributions.TanhGaussian.
#pragma once

#include <cstddef>
#include <cstdint>

#include "layers.hpp"
#include "penstock/kernels/level.hpp"

namespace penstock::kernels {

class Squashed {
public:
    // `low` and `high` bound the logarithm of the deviation. `stride`: floats in a row of the actor's outputs.
    Squashed(std::int32_t size, double low, double high, std::ptrdiff_t stride, const Level& level);

    // outputs [rows, stride]: means, then logarithms of deviations. noise [rows, size].
    void sample(const float* outputs, const float* noise, std::int32_t rows);
    const float* action() const { return action_.data(); }      // [rows, size]
    float log_prob(std::int32_t row) const { return log_prob_.data()[row]; }

    // Writes one row of d [rows, stride], the gradient of the outputs. `of_action` [size] and `of_log_prob` are the
    // loss's slopes with respect to the row's action and to its log-probability.
    void gradient(std::int32_t row, const float* outputs, const float* noise, const float* of_action, float of_log_prob,
                  float* d) const;

private:
    std::int32_t size_;
    float low_, high_;
    std::ptrdiff_t stride_;
    const Level& level_;
    Floats deviation_, action_, tail_, log_prob_;
};

}  // namespace penstock::kernels
