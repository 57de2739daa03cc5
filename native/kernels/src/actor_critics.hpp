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

// Each side takes half of the rows through the actor, and half of the critics through all rows. So a critic's weights,
// gradient and moments stay in the caches of one core. The rows go in parts: one part of each side's rows at a time.
class ActorCritics : public ReplayUpdate {
public:
    ActorCritics(std::vector<Encoding> encoding, const ActorCriticShapes& shapes, NoiseKeys keys, const Optimizer& optimizer,
                 const Level& level);
    std::int64_t action_numbers() const override { return action_size_; }

protected:
    friend class SoftActor;

    // One side's memory: its passes, and the rows of its part. The other side reads those between two meetings.
    struct Workspace {
        Workspace(const Learned& actor, const Learned& critic, std::int32_t elements, const Level& level);
        Pass actor, critic;
        Floats actor_x, critic_x;
        Floats noise, action, of_action;  // [rows, action]
        Floats target;                    // [rows]
        Floats values;                    // what each critic says: [critics, kRowsAtOnce, outputs]
    };
    enum : std::size_t { kCritic, kActor };          // phases
    enum : std::size_t { kValueLoss, kMeanValue };  // metrics

    // Writes the features of the next observations and an action for each to the side's critic_x.
    virtual void choose_next(const Part& own, int side) = 0;
    // Writes the targets. `values` of the side's workspace are those of the critics' targets there.
    virtual void targets(const Part& own, int side) = 0;
    // Writes the gradient of a critic's outputs on the rows of side `rows_of`: d [rows, output_stride], which is zero.
    virtual void errors(int critic, int rows_of, const Part& part, int side, const float* outputs, float* d) = 0;

    // Computes the critics' gradient.
    void critic_gradients(Sides& sides);
    // `errors` of values whose squared errors are learned, times `scale`.
    void squared_errors(int rows_of, const Part& part, int side, float scale, const float* values, float* d);
    // Puts features and actions [rows, action] side by side. The features are the first columns of `x`.
    void critic_inputs(const float* x, const float* actions, std::int32_t rows, Workspace& work) const;
    // The smallest value of a row, of all critics.
    float smallest_value(const Workspace& work, std::int32_t row) const;
    float* values(Workspace& work, int critic) const { return work.values.data() + critic * kRowsAtOnce * outputs_; }
    const float* values(const Workspace& work, int critic) const {
        return work.values.data() + critic * kRowsAtOnce * outputs_;
    }
    // Keeps a critic's outputs [rows, output_stride] as values of a side's rows.
    void keep_values(int critic, const float* outputs, std::int32_t rows, Workspace& work) const;

    // Calls use(own, side): each side for its own part of this number.
    template <typename Use>
    void each_own(Sides& sides, std::int64_t number, Use&& use) {
        sides.both([&](int side) { use(part_of(side, number), side); });
    }
    // Calls use(critic, rows_of, part, side): each side for its critics, with the rows of both sides or only its own.
    // `part.first`: they are the first rows that this side takes through this critic.
    template <typename Use>
    void each_critic(Sides& sides, std::int64_t number, Use&& use) {
        sides.both([&](int side) {
            for (int critic = 0; critic < critic_.count(); ++critic)
                for (int rows_of = 0; rows_of < kSides; ++rows_of) {
                    Part rows = part_of(rows_of, number);
                    if (!critic_.computes(side, critic, rows_of)) continue;
                    rows.first = rows.first && (rows_of == 0 || critic_.is_shared(critic));
                    use(critic, rows_of, rows, side);
                }
        });
    }

    std::int32_t action_size_;
    Learned actor_, critic_;
    std::int32_t outputs_;  // of a critic
    std::unique_ptr<Workspace> work_[kSides];

private:
    // Puts the features and actions of the minibatch's rows side by side, as the critics take them.
    void taken(const Part& own, Workspace& work) const;
};

}  // namespace penstock::kernels
