// The minibatch update of an actor-critic with two networks: gather, losses, gradients, clip, optimizer, metrics.
// Computes no targets and has no schedule: it is given the rows of each minibatch. See penstock.kernels.update.
#pragma once

#include <cstdint>
#include <optional>

#include "meeting.hpp"
#include "network.hpp"
#include "policy.hpp"
#include "policy_loss.hpp"
#include "records.hpp"

namespace penstock::kernels {

// The sums of the squares of both gradients.
struct Squares {
    double actor, critic;
};

class Update {
public:
    Update(const Graph& graph, const Loss& loss, std::int64_t rows, const Level& level);
    virtual ~Update() = default;
    Update(const Update&) = delete;
    Update& operator=(const Update&) = delete;

    std::int64_t actor_size() const { return actor_.flat_size(); }
    std::int64_t critic_size() const { return critic_.flat_size(); }
    const Graph& graph() const { return graph_; }
    const Loss& loss() const { return loss_; }
    std::size_t statistics() const { return records_.statistics(); }
    std::int64_t rows() const { return records_.rows(); }

    // Makes records of rows first, ..., first + count - 1.
    void pack(const Fields& fields, const Statistics& statistics, std::int64_t first, std::int64_t count);
    void load(const Vectors& actor, const Vectors& critic);
    void store(const Vectors& actor, const Vectors& critic) const;
    // Runs all minibatches. `step` is Adam's count before the first one. Returns the count after the last one.
    std::int64_t run(const Minibatches& minibatches, std::int64_t step, double lr, int threads);
    // Computes both gradients of one minibatch, or of a part of it. For a part, `whole` holds the moments of the
    // advantages of all parts. Returns the sum of the weights of its rows. Without rows it is 0, and the gradients are
    // zero.
    double compute_gradients(const Minibatches& one, const std::optional<AdvantageMoments>& whole, int threads);
    // The gradients that were computed last, as flat vectors.
    void store_gradients(float* actor, float* critic) const;
    // Takes a step down these gradients. `step` is Adam's count after it.
    void descend(const float* actor, const float* critic, std::int64_t step, double lr);
    Metrics take_metrics();

protected:
    // Index of the last row that is read for a row named by a minibatch, less the index of the named row.
    virtual std::int64_t behind() const { return 0; }
    // Computes both gradients of one minibatch on one thread. Nothing if the minibatch has no rows.
    virtual std::optional<Squares> gradients(const Minibatches& minibatches, std::int64_t number);
    // Computes one gradient: side 0 is the actor's, side 1 the critic's. Another thread computes the other one.
    virtual std::optional<Squares> side_gradient(const Minibatches& minibatches, std::int64_t number, Seat& seat);
    // Each returns the sum of the gradient's squares. `whole`: as in PolicyLoss::begin.
    double actor_gradient(const Sample& rows, const std::optional<AdvantageMoments>& whole);
    double critic_gradient(const Sample& rows);

    Graph graph_;
    Loss loss_;
    TrainedMlp actor_, critic_;
    Records records_;
    Metrics metrics_;
    PolicyLoss policy_loss_;
    Floats actor_features_, critic_features_;
    Sample actor_rows_, critic_rows_;
    std::optional<AdvantageMoments> whole_;  // of all parts, while a part of a minibatch is learned from

private:
    void check(const Minibatches& minibatches) const;
    // All minibatches, on one thread or as one of two sides.
    template <typename Compute>
    std::int64_t run_each(const Minibatches& minibatches, std::int64_t step, double lr, bool actor, bool critic,
                          Compute&& compute);
    void measure(const Squares& squares);
    // Clips, then takes a step of each network that is asked for.
    void finish(const Squares& squares, std::int64_t step, double lr, bool actor, bool critic);
};

}  // namespace penstock::kernels
