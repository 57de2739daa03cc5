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
    ActorCritics(std::vector<Encoding> encoding, const ActorCriticShapes& shapes, NoiseKeys keys, const Optimizer& optimizer,
                 const Level& level);
    std::int64_t action_numbers() const override { return action_size_; }

protected:
    friend class SoftActor;

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
    enum : std::size_t { kCritic, kActor };          // phases
    enum : std::size_t { kValueLoss, kMeanValue };  // metrics

    // Adds up the critics' gradient of a part's rows.
    virtual void critic_gradient(const Part& part, int side, Workspace& work) = 0;

    // Computes the critics' gradient of all rows of one side.
    void critic_gradients(int side);
    // Adds up the gradient of `scale` times the squared errors of values whose targets are in `work.target`.
    void squared_errors(const Part& part, int side, float scale, Workspace& work);
    // Puts features and actions of a part's rows side by side, as the critics take them.
    void taken(const Part& part, Workspace& work) const;
    // Puts features and actions [rows, action] side by side. The features are the first columns of `x`.
    void critic_inputs(const float* x, const float* actions, std::int32_t rows, Workspace& work) const;
    // The smallest target value of each row's features and actions: to [rows].
    void smallest_target(const float* actions, const Part& part, Workspace& work);

    std::int32_t action_size_;
    Learned actor_, critic_;
    std::unique_ptr<Workspace> work_[kSides];
};

}  // namespace penstock::kernels
