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

    // Actions for a part's rows, sampled from the actor with these weights. `outputs` are the actor's.
    struct Chosen {
        Squashed& sample;
        const float* outputs;
    };
    // `input`: the noise input. The features of `fields` are left in work.actor_x.
    Chosen choose(const std::vector<Rows>& fields, const Weights& weights, std::size_t input, const Part& part,
                  Workspace& work);
    float temperature() const;

    // The gradients of actor and temperature. The first output of a critic is its value.
    void gradients(Sides& sides);
    // One step of both. `tau` above 0: the actor's target follows.
    void descend(Sides& sides, double tau);

private:
    void gradient(const Part& part, int side, Workspace& work);

    ActorCritics& of_;
    SoftSettings settings_;
    std::size_t first_metric_;  // policy_loss, entropy, temperature
    Learned log_alpha_;
    std::unique_ptr<Squashed> squashed_[kSides];
    double entropy_[kSides] = {};
};

}  // namespace penstock::kernels
