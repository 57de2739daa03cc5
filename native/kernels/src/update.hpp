// The minibatch update of an actor-critic of two networks: gather, losses, gradients, clip, Adam, metrics.
// Computes no targets and owns no schedule: it is given the rows of each minibatch. See penstock.kernels.update.
#pragma once

#include <cstdint>
#include <vector>

#include "meeting.hpp"
#include "network.hpp"

namespace penstock::kernels {

enum class Optimizer : std::int32_t { adam, rmsprop };

struct Loss {
    double clip_param;  // of the ratio to the policy that acted
    double value_coef;
    double entropy_coef;
    double max_grad_norm;
    double epsilon;  // of the optimizer
    bool normalize_advantage;
    bool clipped = true;  // false: the plain policy gradient, without a ratio
    Optimizer optimizer = Optimizer::adam;
};

// Sums over minibatches.
struct Metrics {
    double policy_loss = 0.0, value_loss = 0.0, entropy = 0.0, approx_kl = 0.0, clip_fraction = 0.0, grad_norm = 0.0;
    std::int64_t count = 0;
};

// One network's share of a state, as flat vectors that are read and written; `m` is null for RMSprop.
struct Vectors {
    float* parameters;
    float* m;
    float* v;
};

// Minibatches as rows of records; a row of weight 0 is not there.
struct Minibatches {
    const std::int64_t* indices;  // [count, size]
    const float* weights;         // [count, size]
    std::int64_t count, size;
};

// The rows of a batch by flat index, each field as one array over all of them.
struct Fields {
    const Rows* obs;
    Rows action, log_prob, advantage, target;
};

class Update {
public:
    // What follows the encoded features in a record.
    struct Columns {
        std::int32_t action, log_prob, advantage, target, size;
    };

    Update(const Graph& graph, const Loss& loss, std::int64_t rows, const Level& level);

    std::int64_t actor_size() const { return actor_.flat_size(); }
    std::int64_t critic_size() const { return critic_.flat_size(); }
    const Graph& graph() const { return graph_; }
    const Loss& loss() const { return loss_; }
    std::size_t statistics() const { return encoder_.statistics(); }
    std::int64_t rows() const { return rows_; }

    // Copies rows first, ..., first + count - 1 into records: observations encoded, targets normalised.
    void pack(const Fields& fields, const Statistics& statistics, std::int64_t first, std::int64_t count);
    void load(const Vectors& actor, const Vectors& critic);
    void store(const Vectors& actor, const Vectors& critic) const;
    // Runs all minibatches, `step` being Adam's count before the first; returns the count after the last.
    std::int64_t run(const Minibatches& minibatches, std::int64_t step, double lr, int threads);
    Metrics take_metrics();

private:
    // What one thread works with for one minibatch.
    struct Sample {
        std::vector<const float*> records;
        std::vector<float> shares;  // weight over the sum of weights
    };
    struct Chunk {
        std::size_t first;
        std::int32_t rows;
    };
    bool collect(const Minibatches& minibatches, std::int64_t number, Sample& rows) const;
    void features(const Sample& rows, const Chunk& chunk, float* to) const;
    double actor_gradient(const Sample& rows);
    double critic_gradient(const Sample& rows);
    void normalise(const Sample& rows);
    void gaussian(const Sample& rows, const Chunk& chunk, const float* mean);
    void categorical(const Sample& rows, const Chunk& chunk, const float* logits);
    void policy_loss(const Sample& rows, const Chunk& chunk);
    void surrogate(const Sample& rows, const Chunk& chunk);
    void plain(const Sample& rows, const Chunk& chunk);
    void finish(double actor_norm, double critic_norm, std::int64_t step, double lr, bool actor, bool critic);
    void descend(TrainedMlp& network, float scale, std::int64_t step, double lr) const;
    void begin_spread();
    std::int64_t run_both(const Minibatches& minibatches, std::int64_t step, double lr);
    std::int64_t run_side(const Minibatches& minibatches, std::int64_t step, double lr, int side, Meeting& meeting);

    Graph graph_;
    Loss loss_;
    const Level& level_;
    TrainedMlp actor_, critic_;
    Encoder encoder_;
    Columns columns_;
    std::int64_t rows_;
    Floats records_;
    Floats actor_features_, critic_features_;
    Sample actor_rows_, critic_rows_;
    std::vector<float> advantages_;
    Floats standard_, log_ratio_, ratio_, slope_;  // one chunk of the actor's rows
    std::vector<float> inverse_std_;
    std::vector<double> spread_gradient_;
    float log_prob_constant_ = 0.0F;
    Metrics metrics_;
};

}  // namespace penstock::kernels
