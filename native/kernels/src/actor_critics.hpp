// What actors with critics of observation and action share: their networks, and the critics' gradient step.
// Subclasses say what the critics learn from, and how the actor learns.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "replay_update.hpp"

namespace penstock::kernels {

struct ActorCriticShapes {
    std::vector<LayerShape> actor, critic;
    int critics;
    std::int32_t action;  // elements
    bool actor_target;
};

// The smaller number; NaN if one of them is.
inline float smaller(float a, float b) { return a < b || a != a ? a : b; }

class ActorCritics : public ReplayUpdate {
public:
    // `loss_scale`: of the squared error of a critic's value.
    ActorCritics(std::vector<Encoding> encoding, const ActorCriticShapes& shapes, double loss_scale, NoiseKeys keys,
                 double epsilon, const Level& level);
    std::int64_t action_numbers() const override { return action_size_; }

protected:
    // One thread's memory for the rows that go through the networks together.
    struct Workspace {
        Workspace(const Learned& actor, const Learned& critic, std::int32_t elements, const Level& level);
        Pass actor;
        std::vector<Pass> critics;
        Floats actor_x, critic_x, critic_dx;
        Floats noise, action, of_action;  // [rows, action]
        Floats target;            // [rows]
        std::vector<const float*> values;  // of each critic, [rows, stride]
    };
    enum : std::size_t { kCritic, kActor };  // phases

    // Writes the targets of a part's rows to `work.target`.
    virtual void targets(const Part& part, Workspace& work) = 0;

    void critic_gradients(Sides& sides);
    // Puts features and actions [rows, action] side by side. The features are the first columns of `x`.
    void critic_inputs(const float* x, const float* actions, std::int32_t rows, Workspace& work) const;
    // The smallest target value of each row's features and actions: to [rows].
    void smallest_target(const float* actions, const Part& part, Workspace& work);

    std::int32_t action_size_;
    Learned actor_, critic_;
    std::unique_ptr<Workspace> work_[kSides];

private:
    void critic_gradient(const Part& part, int side, Workspace& work);

    float loss_scale_;
};

}  // namespace penstock::kernels
