// Advantages of one rollout: generalised advantage estimation, and V-trace for rows of an older policy. Runs no network:
// both are given all values.
#pragma once

#include <cstdint>

namespace penstock::kernels {

// All arrays are contiguous; see penstock.kernels.gae for their meaning.
struct Rollout {
    std::int64_t steps;  // T
    std::int64_t lanes;  // B
    const float* reward;       // [T, B]
    const float* value;        // [T + 1, B]
    const bool* terminated;    // [T, B]
    const bool* truncated;     // [T, B]
    const bool* valid;         // [T, B]
    std::int64_t final_count;
    const std::int64_t* final_t;
    const std::int64_t* final_lane;
    const float* final_value;
    bool same_step;
};

// Throws std::invalid_argument if a truncated row of a same-step source has no final value.
void gae(const Rollout& rollout, double gamma, double gae_lambda, float* advantage, float* target);

// How much a row's own error counts (rho), and how much the errors behind it (c).
struct Importance {
    double rho, c;
};

// One row of the pass backwards through a lane. `delta` is the row's own error. `correction` is the target less the
// value: at first of the next row, afterwards of this row. Returns the row's advantage.
inline double trace_back(double delta, const Importance& weights, double decay, double& correction) {
    const double advantage = weights.rho * (delta + decay * correction);
    correction = weights.rho * delta + decay * weights.c * correction;
    return advantage;
}

// How far the policy has moved since it acted, and how much of that counts.
struct Correction {
    const float* log_ratio;  // [T, B]
    double rho_bar;
    double c_bar;
};

// As gae, with the importance weights of V-trace. Throws as gae.
void vtrace(const Rollout& rollout, const Correction& correction, double gamma, double gae_lambda, float* advantage,
            float* target);

}  // namespace penstock::kernels
