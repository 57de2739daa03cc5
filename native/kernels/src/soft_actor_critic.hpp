// The update of SAC: see penstock.algorithms.sac.learn.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "actor_critics.hpp"
#include "squashed.hpp"

namespace penstock::kernels {

struct SoftSettings {
    double log_std_min, log_std_max;
    bool learns_temperature;
    double target_entropy;
    double tau;
};

class SoftActorCritic final : public ActorCritics {
public:
    SoftActorCritic(std::vector<Encoding> encoding, const ActorCriticShapes& shapes, const SoftSettings& settings,
                    NoiseKeys keys, double epsilon, const Level& level);

protected:
    void targets(const Part& part, Workspace& work) override;
    void gradients(std::size_t phase, Sides& sides) override;
    void descend(std::size_t phase, Sides& sides) override;

private:
    enum : std::size_t { kPolicyLoss = 2, kEntropy, kTemperature };  // metrics
    void actor_gradient(const Part& part, int side, Workspace& work);
    Squashed& squashed(const Workspace& work) { return *squashed_[&work == work_[0].get() ? 0 : 1]; }
    float alpha() const;

    SoftSettings settings_;
    Learned log_alpha_;
    std::unique_ptr<Squashed> squashed_[kSides];
    double entropy_[kSides] = {};
};

}  // namespace penstock::kernels
