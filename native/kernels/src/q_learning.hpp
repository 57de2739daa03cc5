// The update of DQN: double, dueling, categorical, and with priorities. See penstock.algorithms.dqn.learn.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "replay_update.hpp"

namespace penstock::kernels {

struct QSettings {
    std::int32_t actions;
    std::int32_t atoms;  // 1: only the mean is learned
    double low, high;    // values of the first and the last atom
    bool dueling;
    bool double_;        // the network chooses the next action
    double error_clip, max_grad_norm;
    double least_priority;
    std::int64_t target_every;
};

class QLearning final : public ReplayUpdate {
public:
    QLearning(std::vector<Encoding> encoding, const std::vector<LayerShape>& layers, const QSettings& settings,
              const Optimizer& optimizer, const Level& level);
    std::int64_t action_numbers() const override { return 1; }

protected:
    void gradients(std::size_t phase, Sides& sides) override;
    void look(std::size_t phase, Sides& sides, bool own) override;
    void descend(std::size_t phase, Sides& sides) override;

private:
    enum : std::size_t { kUpdate, kTarget };                // phases
    enum : std::size_t { kValueLoss, kMeanValue, kGradNorm };  // metrics

    // One thread's memory.
    struct Workspace {
        Workspace(const Stack& stack, const QSettings& settings, const Level& level);
        Pass pass, target;
        Floats x;
        Floats following, chooser, said;  // [actions * atoms] of one row
        Floats target_share, d;           // [atoms] of one row
    };
    // What one row contributes.
    struct Judged {
        float loss, error, value;
    };

    void gradient(const Part& part, int side, Workspace& work);
    // Outputs of the network as values or logits [actions * atoms]; a dueling network has one output more.
    void combine(const float* outputs, float* to) const;
    std::int32_t best(const float* values) const;
    // The softmax of [atoms] logits, and the logarithm of the sum of their exponentials.
    float softmax(const float* logits, float* to) const;
    // Write the gradient of one row's loss with respect to the values of its action to work.d.
    Judged judge_mean(std::int64_t row, std::int32_t action, std::int32_t next, Workspace& work) const;
    Judged judge_atoms(std::int64_t row, std::int32_t action, std::int32_t next, Workspace& work) const;

    QSettings settings_;
    Learned actor_;
    std::vector<float> atoms_;
    std::unique_ptr<Workspace> work_[kSides];
    double squares_[kSides] = {};
    float scale_ = 1.0F;
};

}  // namespace penstock::kernels
