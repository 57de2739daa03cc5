// Gradient steps from minibatches of a table: many in one call with their sampling, or one phase at a time for learners
// that exchange gradients. Subclasses are the algorithms. See penstock.kernels.replay_update.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "encoder.hpp"
#include "learned.hpp"
#include "minibatch.hpp"
#include "penstock/kernels/minibatches.hpp"
#include "sides.hpp"

namespace penstock::kernels {

struct PhaseSpec {
    std::string name;
    std::int64_t every;            // it is due at every n-th gradient step
    std::vector<Learned*> learned;  // vectors that have a gradient in this phase
};

struct MetricSpec {
    std::string name;
    std::size_t phase;
};

// What is the same for all gradient steps of a call.
struct Steps {
    std::int64_t count;
    std::uint64_t seed, number;  // the sampling key of the first step; `number` rises by one with each step
    double beta;
    std::vector<double> lr;  // of each vector with an optimizer
    int threads;
};

struct Ran {
    std::int64_t steps = 0;
    const char* no_rows = nullptr;       // why no row could be sampled, or nullptr
    const char* bad_priority = nullptr;  // what was wrong with a priority, or nullptr
    bool stopped() const { return no_rows != nullptr || bad_priority != nullptr; }
};

// Identity of the noise of a run.
struct NoiseKeys {
    std::vector<std::uint64_t> seeds;  // of each noise input, over all phases in order
    std::int64_t first_row;            // number of this learner's first row; rows are numbered over all learners
};

class ReplayUpdate {
public:
    ReplayUpdate(std::vector<Encoding> encoding, NoiseKeys keys, const Optimizer& optimizer, const Level& level);
    virtual ~ReplayUpdate() = default;
    ReplayUpdate(const ReplayUpdate&) = delete;
    ReplayUpdate& operator=(const ReplayUpdate&) = delete;

    const Level& level() const { return level_; }
    const Optimizer& optimizer() const { return optimizer_; }
    const std::vector<PhaseSpec>& phases() const { return phases_; }
    // Every vector that gradient steps change. The first `stepped` of them have an optimizer and a learning rate.
    const std::vector<Learned*>& learned() const { return learned_; }
    std::size_t stepped() const { return stepped_; }
    std::size_t fields() const { return encoding_.size(); }
    std::int32_t features() const { return encoder_.features(); }
    // Features [features()] are shifted and scaled by these from now on. Not while a step runs.
    void normalise(const double* mean, const double* variance) {
        encoder_ = Encoder(encoding_, true);
        encoder_.load(mean, variance);
    }
    const Encoding& encoding(std::size_t field) const { return encoding_[field]; }

    // Numbers of one row's action.
    virtual std::int64_t action_numbers() const = 0;
    void bind(Minibatch minibatch);
    // Takes `steps.count` gradient steps, or fewer if no row can be sampled or a priority is bad.
    Ran run(const Steps& steps, const Minibatches& minibatches);
    // Takes one gradient step with the minibatch as it is.
    void step(const std::vector<double>& lr, int threads);
    // Computes the gradients of one phase, into gradient(0) of its vectors.
    void compute_gradients(std::size_t phase, int threads);
    // Applies the gradients that are in gradient(0) of the phase's vectors.
    void apply(std::size_t phase, const std::vector<double>& lr, int threads);

    // Means since the last call: name and value. Phases that were not due have none.
    std::vector<std::pair<std::string, double>> take_metrics();

    std::int64_t gradient_steps = 0;

protected:
    // Writes the gradients of both sides into the phase's vectors. `sides` says which of them this thread computes.
    virtual void gradients(std::size_t phase, Sides& sides) = 0;
    // One step of the phase's optimizers, and of the targets that move with it.
    virtual void descend(std::size_t phase, Sides& sides) = 0;

    // Looks at the whole gradient of a phase, before descend. `own`: it is the one that was just computed here.
    virtual void look(std::size_t, Sides&, bool /*own*/) {}

    void add(Learned& vector) {
        vector.keep_for(optimizer_);
        learned_.push_back(&vector);
        stepped_ = learned_.size();
    }
    // Adds a vector that moves to what stands in place of its gradient. Call it after all calls of `add`.
    void add_average(Learned& vector) { learned_.push_back(&vector); }
    double lr_of(const Learned& vector) const;
    // One step of a vector's optimizer, and the transposes that it makes necessary. `tau` above 0: its target follows.
    void descend_on(Learned& vector, Sides& sides, double tau = 0.0, float scale = 1.0F);

    // Part `number` of one side's rows. Side 1 may have one row less than side 0, so its last part may be empty.
    Part part_of(int side, std::int64_t number) const {
        const std::int64_t half = (minibatch_.size + 1) / 2;
        const std::int64_t row = (side == 0 ? 0 : half) + number * kRowsAtOnce, end = side == 0 ? half : minibatch_.size;
        return {row, static_cast<std::int32_t>(std::clamp<std::int64_t>(end - row, 0, kRowsAtOnce)), number == 0};
    }
    // Number of parts of one side's rows.
    std::int64_t parts() const { return ((minibatch_.size + 1) / 2 + kRowsAtOnce - 1) / kRowsAtOnce; }
    // Calls use(part) for all rows of one side.
    template <typename Use>
    void each_part(int side, Use&& use) const {
        for (std::int64_t number = 0; number < parts(); ++number) use(part_of(side, number));
    }
    float share(std::int64_t row) const { return minibatch_.weight[row] * inverse_weight_; }
    void encode(const std::vector<Rows>& fields, const Part& part, float* to, std::ptrdiff_t stride) const;
    // Standard normal numbers [rows, size] of one noise input.
    void noise(std::size_t input, const Part& part, std::int32_t size, float* to) const;
    void measure(int side, std::size_t metric, double value) { sums_[side][metric] += value; }

    const Level& level_;
    Minibatch minibatch_{};
    Encoder encoder_;
    Optimizer optimizer_;
    std::vector<PhaseSpec> phases_;
    std::vector<MetricSpec> metrics_;

private:
    void step_on(Sides& sides);
    void compute_on(std::size_t phase, Sides& sides);

    std::vector<Encoding> encoding_;
    NoiseKeys keys_;
    std::vector<std::int64_t> row_numbers_;
    std::vector<Learned*> learned_;
    std::size_t stepped_ = 0;
    std::vector<double> lr_;
    std::vector<char> due_;  // of each phase, in the current step
    std::vector<std::int64_t> counts_;  // of each phase, since metrics were taken
    struct alignas(64) Sums : std::vector<double> {};
    Sums sums_[kSides];
    float inverse_weight_ = 0.0F;
};

}  // namespace penstock::kernels
