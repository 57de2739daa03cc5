// The update of SAC: see penstock.algorithms.sac.learn.
#pragma once

#include <vector>

#include "actor_critics.hpp"
#include "soft_actor.hpp"

namespace penstock::kernels {

class SoftActorCritic final : public ActorCritics {
public:
    SoftActorCritic(std::vector<Encoding> encoding, const ActorCriticShapes& shapes, const SoftSettings& settings,
                    std::int64_t policy_delay, NoiseKeys keys, const Optimizer& optimizer, const Level& level);

protected:
    void choose_next(const Part& own, int side) override;
    void targets(const Part& own, int side) override;
    void errors(int critic, int rows_of, const Part& part, int side, const float* outputs, float* d) override;
    void gradients(std::size_t phase, Sides& sides) override;
    void descend(std::size_t phase, Sides& sides) override;

private:
    double tau_;
    SoftActor soft_;
};

}  // namespace penstock::kernels
