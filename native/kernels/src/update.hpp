// The minibatch update of an actor-critic with two networks: gather, losses, gradients, clip, Adam, metrics.
// Computes no targets and has no schedule: it is given the rows of each minibatch. See penstock.kernels.update.
#pragma once

#include <cstdint>

#include "meeting.hpp"
#include "network.hpp"
#include "policy.hpp"
#include "policy_loss.hpp"
#include "records.hpp"

namespace penstock::kernels {

// The part of a state that belongs to one network, as flat vectors that are read and written. `m` is null for RMSprop.
struct Vectors {
    float* parameters;
    float* m;
    float* v;
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
    Metrics take_metrics();

protected:
    // How many rows behind the one that a minibatch names the last one lies that belongs to it.
    virtual std::int64_t behind() const { return 0; }
    // All minibatches on one thread; and one side of them, 0 the actor's or 1 the critic's, while another thread has the
    // other. Both return Adam's count after the last one.
    virtual std::int64_t run_both(const Minibatches& minibatches, std::int64_t step, double lr);
    virtual std::int64_t run_side(const Minibatches& minibatches, std::int64_t step, double lr, int side, Meeting& meeting);
    // Each returns the sum of the gradient's squares.
    double actor_gradient(const Sample& rows);
    double critic_gradient(const Sample& rows);
    void finish(double actor_norm, double critic_norm, std::int64_t step, double lr, bool actor, bool critic);

    Graph graph_;
    Loss loss_;
    TrainedMlp actor_, critic_;
    Records records_;
    Metrics metrics_;
    PolicyLoss policy_loss_;
    Floats actor_features_, critic_features_;
    Sample actor_rows_, critic_rows_;
};

}  // namespace penstock::kernels
