// The gradient step of an actor that is rewarded for its entropy, and of the temperature of that reward: SAC's, which DSAC
// has as well. It belongs to an update and works on its networks and minibatch. Knows nothing of how critics learn.
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

class SoftActor {
public:
    using Workspace = ActorCritics::Workspace;

    // Adds the vector log_alpha and the actor's metrics to `of`, which must outlive it.
    SoftActor(ActorCritics& of, const SoftSettings& settings, std::int64_t every);

    // Samples actions for a side's part from the actor with these weights. Puts them beside the features of `fields` into
    // the side's critic_x. `input`: the noise input.
    void choose(const std::vector<Rows>& fields, const Weights& weights, std::size_t input, const Part& own, int side);
    // What `choose` sampled last.
    const Squashed& chosen(int side) const { return *squashed_[side]; }
    float temperature() const;

    // The gradients of actor and temperature. The first output of a critic is its value.
    void gradients(Sides& sides);
    // One step of both. `tau` above 0: the actor's target follows.
    void descend(Sides& sides, double tau);

private:
    // Lets a critic judge the chosen actions of side `rows_of`: their values, and the slopes of these.
    void judge(int critic, int rows_of, const Part& part, int side);
    // Adds the gradient of a side's part, whose actions are judged.
    void gradient(const Part& own, int side);
    // Writes the slopes of a row's smallest value, with respect to the action, to the side's of_action. Critics that say the
    // same smallest value share them.
    void slopes_of_least(float least, std::int32_t row, int side);
    // Slopes of a critic's values with respect to the actions of a side's part: [rows, action].
    float* slopes(int side, int critic);

    ActorCritics& of_;
    SoftSettings settings_;
    std::size_t first_metric_;  // policy_loss, entropy, temperature
    Learned log_alpha_;
    std::unique_ptr<Squashed> squashed_[kSides];
    Floats slopes_[kSides];
    double entropy_[kSides] = {};
};

}  // namespace penstock::kernels
