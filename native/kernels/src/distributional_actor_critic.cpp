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

void DistributionalActorCritic::choose_next(const Part& own, int side) {
    if (own.first) {
        std::ranges::fill(sums_of_[side].deviation, 0.0);
        std::ranges::fill(sums_of_[side].variance, 0.0);
    }
    soft_.choose(minibatch_.next, actor_.target(0), kCritic, own, side);
}

void DistributionalActorCritic::targets(const Part& own, int side) {
    Workspace& work = *work_[side];
    noise(kReturn, own, 1, work.noise.data());
    const float temperature = soft_.temperature();
    for (std::int32_t r = 0; r < own.rows; ++r) {
        const std::int64_t row = own.row + r;
        const float* least = values(work, 0) + r * outputs_;
        for (int critic = 0; critic < critic_.count(); ++critic) {
            const float* value = values(work, critic) + r * outputs_;
            if (*value < *least || *value != *value) least = value;
        }
        const float bonus = temperature * soft_.chosen(side).log_prob(r);
        const float off = softplus(least[1]) * std::clamp(work.noise.data()[r], -kReach, kReach);
        const float sampled = minibatch_.reward[row] + minibatch_.discount[row] * (least[0] + off - bonus);
        const float expected = minibatch_.reward[row] + minibatch_.discount[row] * (least[0] - bonus);
        sampled_[side].data()[r] = sampled;
        work.target.data()[r] = returns_.refined ? expected : sampled;
    }
}

void DistributionalActorCritic::errors(int critic, int rows_of, const Part& part, int side, const float* outputs, float* d) {
    const auto c = static_cast<std::size_t>(critic);
    const float *target = work_[rows_of]->target.data(), *sampled = sampled_[rows_of].data();
    const std::ptrdiff_t stride = critic_.stack().output_stride();
    const auto most = static_cast<float>(returns_.bound);
    const float bound = averages_ == nullptr ? most : most * averages_->deviation.numbers()[c];
    const float scale = averages_ == nullptr ? 1.0F : averages_->variance.numbers()[c] + kEpsilon;
    double loss = 0.0, mean = 0.0, deviations = 0.0, variances = 0.0;
    for (std::int32_t r = 0; r < part.rows; ++r) {
        const float value = outputs[r * stride], raw = outputs[r * stride + 1];
        const float deviation = softplus(raw), variance = deviation * deviation;
        const float of_row = share(part.row + r);
        const float error = target[r] - value;
        const float off = std::clamp(sampled[r] - value, -bound, bound);
        d[r * stride] = -of_row * scale * error / (variance + kEpsilon);
        d[r * stride + 1] =
            -of_row * scale * (off * off - variance) / (variance * deviation + kEpsilon) * slope_of_softplus(raw);
        loss += static_cast<double>(of_row * error * error);
        mean += static_cast<double>(of_row * value);
        deviations += static_cast<double>(of_row * deviation);
        variances += static_cast<double>(of_row * variance);
    }
    sums_of_[side].deviation[c] += deviations;
    sums_of_[side].variance[c] += variances;
    measure(side, kValueLoss, loss / critic_.count());
    measure(side, kMeanValue, mean / critic_.count());
    measure(side, deviation_metric_, deviations / critic_.count());
}

void DistributionalActorCritic::gradients(std::size_t phase, Sides& sides) {
    if (phase == kActor) return soft_.gradients(sides);
    critic_gradients(sides);
    if (averages_ == nullptr) return;
    // What the averages move to takes the place of their gradient, so that several learners average it as well.
    sides.both([&](int side) {
        const Sums& sums = sums_of_[side];
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
