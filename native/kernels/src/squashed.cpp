#include "squashed.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace penstock::kernels {

namespace {

std::size_t numbers(std::int32_t size) { return static_cast<std::size_t>(kRowsAtOnce * size); }

}  // namespace

Squashed::Squashed(std::int32_t size, double low, double high, std::ptrdiff_t stride, const Level& level)
    : size_(size), low_(static_cast<float>(low)), high_(static_cast<float>(high)), stride_(stride), level_(level),
      deviation_(numbers(size)), action_(numbers(size)), tail_(numbers(size)), log_prob_(kRowsAtOnce) {}

void Squashed::sample(const float* outputs, const float* noise, std::int32_t rows) {
    float *deviation = deviation_.data(), *action = action_.data(), *tail = tail_.data();
    const auto count = static_cast<std::size_t>(rows * size_);
    for (std::int32_t r = 0; r < rows; ++r)
        for (std::int32_t k = 0; k < size_; ++k)
            deviation[r * size_ + k] = std::clamp(outputs[r * stride_ + size_ + k], low_, high_);
    level_.elementwise(Elementwise::exp, deviation, count);
    for (std::int32_t r = 0; r < rows; ++r)
        for (std::int32_t k = 0; k < size_; ++k) {
            const std::int32_t i = r * size_ + k;
            action[i] = outputs[r * stride_ + k] + deviation[i] * noise[i];
            tail[i] = -2.0F * std::abs(action[i]);
        }
    level_.elementwise(Elementwise::exp, tail, count);
    const auto half_log_two_pi = static_cast<float>(0.5 * std::log(2.0 * std::numbers::pi));
    for (std::int32_t r = 0; r < rows; ++r) {
        float log_prob = 0.0F;
        for (std::int32_t k = 0; k < size_; ++k) {
            const std::int32_t i = r * size_ + k;
            const float log_deviation = std::clamp(outputs[r * stride_ + size_ + k], low_, high_);
            // log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u)) stays exact when tanh rounds to 1.
            const float softplus = std::max(-2.0F * action[i], 0.0F) + std::log1p(tail[i]);
            const float slope = 2.0F * (std::numbers::ln2_v<float> - action[i] - softplus);
            log_prob += -0.5F * noise[i] * noise[i] - log_deviation - half_log_two_pi - slope;
        }
        log_prob_.data()[r] = log_prob;
    }
    level_.elementwise(Elementwise::tanh, action, count);
}

void Squashed::gradient(std::int32_t row, const float* outputs, const float* noise, const float* of_action,
                        float of_log_prob, float* d) const {
    const float* out = outputs + row * stride_;
    float* to = d + row * stride_;
    for (std::int32_t k = 0; k < size_; ++k) {
        const std::int32_t i = row * size_ + k;
        const float action = action_.data()[i];
        // d action / d u = 1 - tanh(u)^2, and d log_prob / d u = 2 tanh(u).
        const float of_u = of_action[k] * (1.0F - action * action) + of_log_prob * 2.0F * action;
        to[k] = of_u;
        const float log_deviation = out[size_ + k];
        const bool inside = log_deviation >= low_ && log_deviation <= high_;
        to[size_ + k] = inside ? of_u * deviation_.data()[i] * noise[i] - of_log_prob : 0.0F;
    }
}

}  // namespace penstock::kernels
