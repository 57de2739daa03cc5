// The minibatch update of an actor-critic on rollouts of older policies: a minibatch is whole lanes, V-trace gives their
// advantages and targets from the networks as they are, and update.hpp does the rest. See penstock.kernels.update.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "update.hpp"

namespace penstock::kernels {

// How lanes lie in the rows, and how V-trace weighs them.
struct Lanes {
    std::int64_t steps;   // rows of a lane that are learned from; one more follows
    std::int64_t stride;  // from a row of a lane to the next one
    double gamma, gae_lambda, rho_bar, c_bar;
    double reward_limit;  // rewards are cut to it on both sides
};

// What happened in the rows of a batch, by flat index.
struct Happened {
    Rows log_prob;  // of the policy that acted
    Rows reward, terminated, truncated, valid;
    Rows bootstrap;  // value of the last observation of a truncated episode
    Rows size;       // of the row's advantage
};

class CorrectedUpdate final : public Update {
public:
    // The loss must be the plain policy gradient. Normalised advantages are scaled by the sizes of the rows, not shifted.
    CorrectedUpdate(const Graph& graph, const Loss& loss, const Lanes& lanes, std::int64_t rows, const Level& level);

    // Makes records of rows first, ..., first + count - 1.
    void pack(const Fields& fields, const Happened& happened, const Statistics& statistics, std::int64_t first, std::int64_t count);

protected:
    std::int64_t behind() const override { return lanes_.steps * lanes_.stride; }
    std::optional<Squares> gradients(const Minibatches& minibatches, std::int64_t number) override;
    std::optional<Squares> side_gradient(const Minibatches& minibatches, std::int64_t number, Seat& seat) override;

private:
    // The lanes of one minibatch, as one thread sees them.
    struct Chosen {
        std::vector<std::int64_t> firsts;  // row 0 of each lane
        std::vector<std::int64_t> rows;    // valid rows, by lane and then by time: those of the sample
    };
    struct Row {
        float reward, log_prob, bootstrap, size;
        bool terminated, truncated, valid;
    };

    // Collects the lanes of a minibatch and their valid rows. False if there are none.
    bool collect(const Minibatches& minibatches, std::int64_t number, Chosen& lanes, Sample& rows) const;
    void judge_actions(const Chosen& lanes, const Sample& rows);
    void judge_states(const Chosen& lanes);
    // Puts V-trace's advantages (for the actor) and targets (for the critic) into the records.
    void correct(const Chosen& lanes, const Sample& rows, bool actor, bool critic);
    // The gradient of the actor, with advantages as large as the loss wants them.
    double sized_actor_gradient(const Chosen& lanes, const Sample& rows);

    Lanes lanes_;
    const Level& level_;
    double value_mean_ = 0.0, value_scale_ = 1.0;
    std::vector<Row> happened_;
    Chosen actor_lanes_, critic_lanes_;
    Sample states_;               // every row of the lanes, the ones behind them included
    std::vector<float> ratios_;   // of the sample's rows, current policy to the one that acted
    std::vector<float> values_;   // of states_, in the units of the rewards
};

}  // namespace penstock::kernels
