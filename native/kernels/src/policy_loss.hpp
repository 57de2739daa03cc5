// The loss of a policy and its gradient with respect to the actor's outputs: the clipped surrogate or the plain policy
// gradient, and the entropy. Knows no network: it turns outputs into gradients, a chunk of rows at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "layers.hpp"
#include "optimizer.hpp"
#include "policy.hpp"
#include "records.hpp"

namespace penstock::kernels {

struct Loss {
    double clip_param;  // of the ratio to the policy that acted
    double value_coef;
    double entropy_coef;
    double max_grad_norm;
    bool clip_apart;  // true: each network's gradient by its own norm; false: both by their norm together
    Optimizer optimizer;
    bool normalize_advantage;
    bool clipped = true;  // false: the plain policy gradient; the records' log-probabilities must be 0
    bool weighed = false;  // true: normalised advantages are multiplied by the rows' own weights of importance
};

// Sums over minibatches.
struct Metrics {
    double policy_loss = 0.0, value_loss = 0.0, entropy = 0.0, approx_kl = 0.0, clip_fraction = 0.0, grad_norm = 0.0,
           rho = 0.0;
    std::int64_t count = 0;  // minibatches with rows
    std::int64_t seen = 0;   // the same, and shares of minibatches in which only other learners have rows
};

// Of the advantages of a minibatch.
struct AdvantageMoments {
    double mean, deviation;
};

class PolicyLoss {
public:
    // `stride`: floats in a row of the actor's outputs. Adds to policy_loss, entropy, approx_kl and clip_fraction of `metrics`.
    PolicyLoss(const Head& head, const Loss& loss, const Records::Columns& columns, std::ptrdiff_t stride,
               const Level& level, Metrics& metrics);

    // Takes the numbers behind the actor's layers (a Gaussian head's log_std). Call it before `log_ratios`.
    void load(const float* free);
    // The current policy's log-probability of each action of a chunk, less the one in its record. Overwrites `scratch`;
    // it and the outputs are [rows, stride]. Valid until the next call.
    const float* log_ratios(const Sample& rows, const Chunk& chunk, const float* outputs, float* scratch);
    // Begins a minibatch with these free numbers. `whole` are the moments of its advantages if these rows are a part of it.
    void begin(const Sample& rows, const float* free, const std::optional<AdvantageMoments>& whole);
    // Computes the gradient `d` of the actor's outputs of a chunk. `d` is zero at first; both are [rows, stride].
    void gradient(const Sample& rows, const Chunk& chunk, const float* outputs, float* d);
    // Computes the gradient of the free numbers. Call it after all chunks.
    void free_gradient(float* free) const;

private:
    // Shifts and scales the advantages by these moments, or by their own weighted mean and deviation.
    void normalise(const Sample& rows, const std::optional<AdvantageMoments>& whole);
    AdvantageMoments moments(const Sample& rows) const;
    // Computes slope_ from log_ratio_: the gradient of the policy's loss with respect to each row's log-probability.
    void slopes(const Sample& rows, const Chunk& chunk);
    void surrogate(const Sample& rows, const Chunk& chunk);
    void plain(const Sample& rows, const Chunk& chunk);
    void gaussian_ratios(const Sample& rows, const Chunk& chunk, const float* mean);
    void categorical_ratios(const Sample& rows, const Chunk& chunk, const float* logits, float* log_probabilities);
    void gaussian(const Chunk& chunk, float* d);
    void categorical(const Sample& rows, const Chunk& chunk, float* d);

    Head head_;
    Loss loss_;
    Records::Columns columns_;
    std::ptrdiff_t stride_;
    const Level& level_;
    Metrics& metrics_;
    std::vector<float> advantages_;
    Floats standard_, log_ratio_, ratio_, slope_;  // one chunk
    std::vector<float> inverse_std_;
    std::vector<double> spread_gradient_;
    double spread_ = 0.0;  // sum of log_std
    float log_prob_constant_ = 0.0F;
};

}  // namespace penstock::kernels
