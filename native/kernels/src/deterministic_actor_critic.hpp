// The update of TD3, and of DDPG as a case of it: see penstock.algorithms.td3.learn.
#pragma once

#include <cstdint>
#include <vector>

#include "actor_critics.hpp"

namespace penstock::kernels {

struct DeterministicSettings {
    std::int64_t policy_delay;
    double smoothing, smoothing_clip;
    double tau;
};

class DeterministicActorCritic final : public ActorCritics {
public:
    DeterministicActorCritic(std::vector<Encoding> encoding, const ActorCriticShapes& shapes,
                             const DeterministicSettings& settings, NoiseKeys keys, const Optimizer& optimizer, const Level& level);

protected:
    void choose_next(const Part& own, int side) override;
    void targets(const Part& own, int side) override;
    void errors(int critic, int rows_of, const Part& part, int side, const float* outputs, float* d) override;
    void gradients(std::size_t phase, Sides& sides) override;
    void descend(std::size_t phase, Sides& sides) override;

private:
    enum : std::size_t { kPolicyLoss = 2 };  // metric
    void actor_gradient(const Part& part, int side, Workspace& work);
    // Writes tanh of the actor's outputs to work.action [rows, action].
    void act(const Weights& weights, const Part& part, Workspace& work) const;

    DeterministicSettings settings_;
};

}  // namespace penstock::kernels
