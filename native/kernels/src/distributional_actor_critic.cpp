#include "distributional_actor_critic.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace penstock::kernels {

namespace {

constexpr float kEpsilon = 0.1F;  // added to each denominator that is a power of the deviation
constexpr float kReach = 3.0F;    // largest distance of a sampled return from its mean, in deviations

float softplus(float x) { return std::max(x, 0.0F) + std::log1p(std::exp(-std::abs(x))); }

float slope_of_softplus(float x) { return 1.0F / (1.0F + std::exp(-x)); }

}  // namespace

DistributionalActorCritic::DistributionalActorCritic(std::vector<Encoding> encoding, const ActorCriticShapes& shapes,
                                                     const SoftSettings& soft, const ReturnSettings& returns,
                                                     NoiseKeys keys, const Optimizer& optimizer, const Level& level)
    : ActorCritics(std::move(encoding), shapes, std::move(keys), optimizer, level), tau_(soft.tau), returns_(returns),
      soft_(*this, soft, returns.policy_delay), deviation_metric_(metrics_.size()) {
    metrics_.push_back({"deviation", kCritic});
    if (returns.refined) {
        averages_ = std::make_unique<Averages>(shapes.critics, level);
        for (Learned* average : {&averages_->deviation, &averages_->variance}) {
            add_average(*average);
            phases_[kCritic].learned.push_back(average);
        }
    }
    for (Floats& numbers : sampled_) numbers = Floats(kRowsAtOnce);
    for (Sums& sums : sums_of_) sums.deviation = sums.variance = std::vector<double>(static_cast<std::size_t>(shapes.critics));
}

void DistributionalActorCritic::targets(const Part& part, int side, Workspace& work) {
    const Squashed& chosen = soft_.choose(minibatch_.next, actor_.target(0), kCritic, part, work).sample;
    critic_inputs(work.actor_x.data(), chosen.action(), part.rows, work);
    for (int c = 0; c < critic_.count(); ++c)
        work.values[static_cast<std::size_t>(c)] =
            work.critics[static_cast<std::size_t>(c)].forward(critic_.target(c), work.critic_x.data(), part.rows);
    noise(kReturn, part, 1, work.noise.data());
    const std::ptrdiff_t stride = critic_.stack().output_stride();
    const float temperature = soft_.temperature();
    for (std::int32_t r = 0; r < part.rows; ++r) {
        const std::int64_t row = part.row + r;
        const float* least = work.values[0] + r * stride;
        for (const float* value : work.values) {
            const float mean = value[r * stride];
            if (mean < *least || mean != mean) least = value + r * stride;
        }
        const float bonus = temperature * chosen.log_prob(r);
        const float off = softplus(least[1]) * std::clamp(work.noise.data()[r], -kReach, kReach);
        const float sampled = minibatch_.reward[row] + minibatch_.discount[row] * (least[0] + off - bonus);
        const float expected = minibatch_.reward[row] + minibatch_.discount[row] * (least[0] - bonus);
        sampled_[side].data()[r] = sampled;
        work.target.data()[r] = returns_.refined ? expected : sampled;
    }
}

void DistributionalActorCritic::critic_gradient(const Part& part, int side, Workspace& work) {
    targets(part, side, work);
    taken(part, work);
    const std::ptrdiff_t stride = critic_.stack().output_stride();
    const auto most = static_cast<float>(returns_.bound);
    double loss = 0.0, mean = 0.0, spread = 0.0;
    for (int c = 0; c < critic_.count(); ++c) {
        Pass& pass = work.critics[static_cast<std::size_t>(c)];
        const Weights weights = critic_.weights(c);
        const float* outputs = pass.forward(weights, work.critic_x.data(), part.rows);
        const float bound = averages_ == nullptr ? most : most * averages_->deviation.numbers()[c];
        const float scale = averages_ == nullptr ? 1.0F : averages_->variance.numbers()[c] + kEpsilon;
        double deviations = 0.0, variances = 0.0;
        float* d = pass.output_gradient();
        std::memset(d, 0, static_cast<std::size_t>(part.rows * stride) * sizeof(float));
        for (std::int32_t r = 0; r < part.rows; ++r) {
            const float value = outputs[r * stride], raw = outputs[r * stride + 1];
            const float deviation = softplus(raw), variance = deviation * deviation;
            const float of_row = share(part.row + r);
            const float error = work.target.data()[r] - value;
            const float off = std::clamp(sampled_[side].data()[r] - value, -bound, bound);
            d[r * stride] = -of_row * scale * error / (variance + kEpsilon);
            d[r * stride + 1] =
                -of_row * scale * (off * off - variance) / (variance * deviation + kEpsilon) * slope_of_softplus(raw);
            loss += static_cast<double>(of_row * error * error);
            mean += static_cast<double>(of_row * value);
            deviations += static_cast<double>(of_row * deviation);
            variances += static_cast<double>(of_row * variance);
        }
        sums_of_[side].deviation[static_cast<std::size_t>(c)] += deviations;
        sums_of_[side].variance[static_cast<std::size_t>(c)] += variances;
        spread += deviations;
        pass.backward(weights, work.critic_x.data(), part.rows, critic_.gradient(side, c), part.first);
    }
    measure(side, kValueLoss, loss / critic_.count());
    measure(side, kMeanValue, mean / critic_.count());
    measure(side, deviation_metric_, spread / critic_.count());
}

void DistributionalActorCritic::gradients(std::size_t phase, Sides& sides) {
    if (phase == kActor) return soft_.gradients(sides);
    sides.both([&](int side) {
        Sums& sums = sums_of_[side];
        std::ranges::fill(sums.deviation, 0.0);
        std::ranges::fill(sums.variance, 0.0);
        critic_gradients(side);
        if (averages_ == nullptr) return;
        // What the averages move to takes the place of their gradient, so that several learners average it as well.
        for (std::size_t c = 0; c < sums.deviation.size(); ++c) {
            averages_->deviation.gradient(side)[c] = static_cast<float>(sums.deviation[c]);
            averages_->variance.gradient(side)[c] = static_cast<float>(sums.variance[c]);
        }
    });
}

void DistributionalActorCritic::descend(std::size_t phase, Sides& sides) {
    if (phase == kCritic) {
        descend_on(critic_, sides);
        if (averages_ == nullptr) return;
        return sides.both([&](int side) {
            averages_->deviation.approach(side, tau_);
            averages_->variance.approach(side, tau_);
        });
    }
    soft_.descend(sides, tau_);
    sides.both([&](int side) { critic_.follow(side, tau_); });
}

}  // namespace penstock::kernels
