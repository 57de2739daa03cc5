#include "replay_update.hpp"

#include <cstring>
#include <numeric>
#include <utility>

namespace penstock::kernels {

ReplayUpdate::ReplayUpdate(std::vector<Encoding> encoding, NoiseKeys keys, const Optimizer& optimizer, const Level& level)
    : level_(level), encoder_(encoding, false), optimizer_(optimizer), encoding_(std::move(encoding)), keys_(std::move(keys)) {}

void ReplayUpdate::bind(Minibatch minibatch) {
    minibatch_ = std::move(minibatch);
    row_numbers_.resize(static_cast<std::size_t>(minibatch_.size));
    std::iota(row_numbers_.begin(), row_numbers_.end(), keys_.first_row);
    counts_.assign(phases_.size(), 0);
    due_.assign(phases_.size(), 0);
    for (Sums& sums : sums_) sums.assign(metrics_.size(), 0.0);
}

double ReplayUpdate::lr_of(const Learned& vector) const {
    const auto at = std::find(learned_.begin(), learned_.end(), &vector) - learned_.begin();
    return lr_[static_cast<std::size_t>(at)];
}

void ReplayUpdate::encode(const std::vector<Rows>& fields, const Part& part, float* to, std::ptrdiff_t stride) const {
    for (std::int32_t r = 0; r < part.rows; ++r) encoder_.encode(fields.data(), part.row + r, to + r * stride);
}

void ReplayUpdate::noise(std::size_t input, const Part& part, std::int32_t size, float* to) const {
    const Noise of{keys_.seeds[input], static_cast<std::uint64_t>(gradient_steps), row_numbers_.data() + part.row,
                   static_cast<std::size_t>(part.rows), static_cast<std::size_t>(size), Distribution::normal};
    level_.noise(of, to);
}

void ReplayUpdate::descend_on(Learned& vector, Sides& sides, double tau, float scale) {
    // First, because a target follows what both sides' matrices have become.
    if (vector.has_matrices()) sides.both([&](int side) { vector.step_matrices(side, optimizer_, lr_of(vector), scale); });
    sides.both([&](int side) {
        vector.descend(side, optimizer_, lr_of(vector), scale);
        if (tau > 0.0) vector.follow(side, tau);
    });
    sides.both([&](int side) {
        if (side == 0) ++vector.steps;
        vector.transpose(side);
    });
}

void ReplayUpdate::compute_on(std::size_t phase, Sides& sides) {
    sides.once([&] {
        double weight = 0.0;
        for (std::int64_t row = 0; row < minibatch_.size; ++row) weight += static_cast<double>(minibatch_.weight[row]);
        inverse_weight_ = static_cast<float>(1.0 / weight);
        ++counts_[phase];
    });
    gradients(phase, sides);
    sides.both([&](int side) {
        for (Learned* vector : phases_[phase].learned) vector->add_sides(side);
    });
    look(phase, sides, true);
}

void ReplayUpdate::step_on(Sides& sides) {
    // Decided once: a thread that asked later would perhaps find the next step's number.
    sides.once([&] {
        for (std::size_t phase = 0; phase < phases_.size(); ++phase) due_[phase] = gradient_steps % phases_[phase].every == 0;
    });
    for (std::size_t phase = 0; phase < phases_.size(); ++phase) {
        if (!due_[phase]) continue;
        compute_on(phase, sides);
        descend(phase, sides);
    }
    sides.once([&] { ++gradient_steps; });
}

void ReplayUpdate::step(const std::vector<double>& lr, int threads) {
    lr_ = lr;
    Sides::run(threads, [&](Sides& sides) { step_on(sides); });
}

void ReplayUpdate::compute_gradients(std::size_t phase, int threads) {
    Sides::run(threads, [&](Sides& sides) { compute_on(phase, sides); });
}

void ReplayUpdate::apply(std::size_t phase, const std::vector<double>& lr, int threads) {
    lr_ = lr;
    Sides::run(threads, [&](Sides& sides) {
        look(phase, sides, false);
        descend(phase, sides);
    });
}

Ran ReplayUpdate::run(const Steps& steps, const Minibatches& minibatches) {
    lr_ = steps.lr;
    Ran ran;
    Sides::run(steps.threads, [&](Sides& sides) {
        for (std::int64_t i = 0; i < steps.count; ++i) {
            sides.once([&] {
                ran.no_rows = minibatches.sample(minibatches.self, steps.seed, steps.number + static_cast<std::uint64_t>(i), steps.beta);
            });
            // Why each of the two tests below reads one pointer only. Thread 0 writes both pointers:
            //   1. `no_rows` again only after the meetings of step_on(). So the other thread has passed this test.
            //   2. `bad_priority` again only after the meetings of the next step. So it has passed the second test.
            //   3. A late thread that read `no_rows` in the second test would do so while thread 0 already samples.
            if (ran.no_rows != nullptr) return;
            step_on(sides);
            sides.once([&] {
                ++ran.steps;
                if (minibatch_.priority != nullptr) ran.bad_priority = minibatches.rank(minibatches.self, minibatch_.priority);
            });
            if (ran.bad_priority != nullptr) return;
        }
    });
    return ran;
}

std::vector<std::pair<std::string, double>> ReplayUpdate::take_metrics() {
    std::vector<std::pair<std::string, double>> found;
    for (std::size_t i = 0; i < metrics_.size(); ++i) {
        const std::int64_t count = counts_[metrics_[i].phase];
        if (count > 0) found.emplace_back(metrics_[i].name, (sums_[0][i] + sums_[1][i]) / static_cast<double>(count));
    }
    for (Sums& sums : sums_) std::fill(sums.begin(), sums.end(), 0.0);
    std::fill(counts_.begin(), counts_.end(), 0);
    return found;
}

}  // namespace penstock::kernels
