// The update of DSAC and of DSAC-T: see penstock.algorithms.dsac.learn and penstock.algorithms.dsact.learn.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "actor_critics.hpp"
#include "soft_actor.hpp"

namespace penstock::kernels {

struct ReturnSettings {
    std::int64_t policy_delay;
    double bound;  // largest distance of a sampled return from its mean: in units of returns; refined: in mean deviations
    bool refined;  // DSAC-T: the mean learns from expected returns, and each critic scales its steps by its own deviation
};

class DistributionalActorCritic final : public ActorCritics {
public:
    DistributionalActorCritic(std::vector<Encoding> encoding, const ActorCriticShapes& shapes, const SoftSettings& soft,
                              const ReturnSettings& returns, NoiseKeys keys, const Optimizer& optimizer, const Level& level);

protected:
    void choose_next(const Part& own, int side) override;
    // Writes the returns that the means learn from to the side's target, and those that the deviations learn from to its
    // sampled_.
    void targets(const Part& own, int side) override;
    void errors(int critic, int rows_of, const Part& part, int side, const float* outputs, float* d) override;
    void gradients(std::size_t phase, Sides& sides) override;
    void descend(std::size_t phase, Sides& sides) override;

private:
    static constexpr std::size_t kReturn = 2;  // noise input, behind those of the next action and the action

    // Moving averages of each critic's deviations and variances.
    struct Averages {
        Averages(std::int32_t critics, const Level& level)
            : deviation("mean_deviation", critics, level), variance("mean_variance", critics, level) {}
        Learned deviation, variance;
    };
    // Sums that one side computes, of each critic.
    struct alignas(64) Sums {
        std::vector<double> deviation, variance;
    };

    double tau_;
    ReturnSettings returns_;
    SoftActor soft_;
    std::size_t deviation_metric_;
    std::unique_ptr<Averages> averages_;  // only if refined
    Floats sampled_[kSides];
    Sums sums_of_[kSides];
};

}  // namespace penstock::kernels
