#include "gae.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

namespace penstock::kernels {

namespace {

// Puts each final value into the place of its row's target, where the backward pass reads it.
void place_finals(const Rollout& rollout, float* target) {
    const auto cut = [&](std::int64_t row) {
        return rollout.valid[row] && rollout.truncated[row] && !rollout.terminated[row];
    };
    std::int64_t missing = 0;
    for (std::int64_t row = 0; row < rollout.steps * rollout.lanes; ++row) missing += cut(row) ? 1 : 0;
    for (std::int64_t k = 0; k < rollout.final_count; ++k) {
        const std::int64_t t = rollout.final_t[k];
        const std::int64_t lane = rollout.final_lane[k];
        if (t < 0 || t >= rollout.steps || lane < 0 || lane >= rollout.lanes)
            throw std::invalid_argument("final " + std::to_string(k) + " is of row (" + std::to_string(t) + ", " +
                                        std::to_string(lane) + "), which the rollout does not have");
        const std::int64_t row = t * rollout.lanes + lane;
        target[row] = rollout.final_value[k];
        missing -= cut(row) ? 1 : 0;
    }
    if (missing > 0)
        throw std::invalid_argument(std::to_string(missing) + " truncated rows have no final value");
}

template <typename WeightsOf>
void backwards(const Rollout& rollout, double gamma, double gae_lambda, const WeightsOf& weights_of, float* advantage,
               float* target) {
    if (rollout.same_step) place_finals(rollout, target);
    const double decay = gamma * gae_lambda;
    // The target less the value of each lane's next row.
    std::vector<double> corrections(static_cast<std::size_t>(rollout.lanes), 0.0);
    for (std::int64_t t = rollout.steps - 1; t >= 0; --t) {
        for (std::int64_t lane = 0; lane < rollout.lanes; ++lane) {
            const std::int64_t row = t * rollout.lanes + lane;
            const double value = rollout.value[row];
            double& correction = corrections[static_cast<std::size_t>(lane)];
            double next_value = rollout.value[row + rollout.lanes];
            if (rollout.truncated[row] && rollout.same_step) next_value = target[row];
            if (rollout.terminated[row]) next_value = 0.0;
            if (rollout.terminated[row] || rollout.truncated[row]) correction = 0.0;
            double own = 0.0;
            if (rollout.valid[row]) {
                const double delta = rollout.reward[row] + gamma * next_value - value;
                own = trace_back(delta, weights_of(row), decay, correction);
            } else {
                correction = 0.0;
            }
            advantage[row] = static_cast<float>(own);
            target[row] = static_cast<float>(correction + value);
        }
    }
}

}  // namespace

void gae(const Rollout& rollout, double gamma, double gae_lambda, float* advantage, float* target) {
    backwards(rollout, gamma, gae_lambda, [](std::int64_t) { return Importance{1.0, 1.0}; }, advantage, target);
}

void vtrace(const Rollout& rollout, const Correction& correction, double gamma, double gae_lambda, float* advantage,
            float* target) {
    const auto weights_of = [&](std::int64_t row) {
        const double ratio = std::exp(static_cast<double>(correction.log_ratio[row]));
        // The order keeps a ratio that is not a number.
        return Importance{std::min(ratio, correction.rho_bar), std::min(ratio, correction.c_bar)};
    };
    backwards(rollout, gamma, gae_lambda, weights_of, advantage, target);
}

}  // namespace penstock::kernels
