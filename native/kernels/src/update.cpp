#include "update.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace penstock::kernels {

namespace {

std::size_t chunk_floats(std::int32_t columns) {
    return static_cast<std::size_t>(kRowsAtOnce) * static_cast<std::size_t>(columns);
}

}  // namespace

Update::Update(const Graph& graph, const Loss& loss, std::int64_t rows, const Level& level)
    : graph_(graph), loss_(loss), actor_(graph.actor, graph.head.gaussian() ? graph.head.size : 0, level),
      critic_(graph.critic, 0, level), records_(graph, rows),
      policy_loss_(graph.head, loss, records_.columns(), actor_.output_stride(), level, metrics_),
      actor_features_(chunk_floats(actor_.input_stride())), critic_features_(chunk_floats(critic_.input_stride())) {}

void Update::pack(const Fields& fields, const Statistics& statistics, std::int64_t first, std::int64_t count) {
    records_.pack(fields, statistics, first, count);
}

void Update::load(const Vectors& actor, const Vectors& critic) {
    actor_.load(actor.parameters, actor.m, actor.v);
    critic_.load(critic.parameters, critic.m, critic.v);
}

void Update::store(const Vectors& actor, const Vectors& critic) const {
    actor_.store(actor.parameters, actor.m, actor.v);
    critic_.store(critic.parameters, critic.m, critic.v);
}

Metrics Update::take_metrics() {
    const Metrics taken = metrics_;
    metrics_ = {};
    return taken;
}

double Update::critic_gradient(const Sample& rows) {
    critic_.begin();
    double loss = 0.0;
    const std::ptrdiff_t stride = critic_.output_stride();
    const std::int32_t target = records_.columns().target;
    each_chunk(rows, [&](const Chunk& chunk) {
        records_.features(rows, chunk, critic_features_.data(), critic_.input_stride());
        const float* value = critic_.forward(critic_features_.data(), chunk.rows);
        float* d = critic_.output_gradient();
        std::memset(d, 0, chunk_floats(critic_.output_stride()) * sizeof(float));
        const auto coefficient = static_cast<float>(2.0 * loss_.value_coef);
        for (std::int32_t r = 0; r < chunk.rows; ++r) {
            const std::size_t row = chunk.first + static_cast<std::size_t>(r);
            const float error = value[r * stride] - rows.records[row][target];
            loss += static_cast<double>(rows.shares[row] * error * error);
            d[r * stride] = coefficient * rows.shares[row] * error;
        }
        critic_.backward(critic_features_.data(), chunk.rows);
    });
    metrics_.value_loss += loss;
    return critic_.squared_norm();
}

double Update::actor_gradient(const Sample& rows) {
    actor_.begin();
    policy_loss_.begin(rows, actor_.free_parameters());
    each_chunk(rows, [&](const Chunk& chunk) {
        records_.features(rows, chunk, actor_features_.data(), actor_.input_stride());
        const float* outputs = actor_.forward(actor_features_.data(), chunk.rows);
        float* d = actor_.output_gradient();
        std::memset(d, 0, chunk_floats(actor_.output_stride()) * sizeof(float));
        policy_loss_.gradient(rows, chunk, outputs, d);
        actor_.backward(actor_features_.data(), chunk.rows);
    });
    policy_loss_.free_gradient(actor_.free_gradient());
    return actor_.squared_norm();
}

// Clips, then takes a step of each network that is asked for.
void Update::finish(double actor_norm, double critic_norm, std::int64_t step, double lr, bool actor, bool critic) {
    const double norm = std::sqrt(actor_norm + critic_norm);
    const auto scale = [&](double own) {
        const double measured = loss_.clip_apart ? std::sqrt(own) : norm;
        return static_cast<float>(std::min(1.0, loss_.max_grad_norm / (measured + 1e-6)));
    };
    if (actor) {
        metrics_.grad_norm += norm;
        ++metrics_.count;
        actor_.descend(loss_.optimizer, step, lr, scale(actor_norm));
    }
    if (critic) critic_.descend(loss_.optimizer, step, lr, scale(critic_norm));
}

std::int64_t Update::run_both(const Minibatches& minibatches, std::int64_t step, double lr) {
    for (std::int64_t number = 0; number < minibatches.count; ++number) {
        if (!records_.collect(minibatches, number, actor_rows_)) continue;
        const double actor_norm = actor_gradient(actor_rows_);
        finish(actor_norm, critic_gradient(actor_rows_), ++step, lr, true, true);
    }
    return step;
}

std::int64_t Update::run_side(const Minibatches& minibatches, std::int64_t step, double lr, int side, Meeting& meeting) {
    Sample& rows = side == 0 ? actor_rows_ : critic_rows_;
    std::uint64_t met = 0;
    for (std::int64_t number = 0; number < minibatches.count; ++number) {
        if (!records_.collect(minibatches, number, rows)) continue;
        const double mine = side == 0 ? actor_gradient(rows) : critic_gradient(rows);
        const double other = meeting.exchange(side, ++met, mine);
        finish(side == 0 ? mine : other, side == 0 ? other : mine, ++step, lr, side == 0, side == 1);
    }
    return step;
}

std::int64_t Update::run(const Minibatches& minibatches, std::int64_t step, double lr, int threads) {
    for (std::int64_t i = 0; i < minibatches.count * minibatches.size; ++i)
        if (minibatches.weights[i] != 0.0F &&
            (minibatches.indices[i] < 0 || minibatches.indices[i] >= records_.rows() - behind()))
            throw std::out_of_range("a minibatch names a row that is not there");
    if (threads == 1) return run_both(minibatches, step, lr);
    Meeting meeting;
    std::thread critic([&] { run_side(minibatches, step, lr, 1, meeting); });
    const std::int64_t after = run_side(minibatches, step, lr, 0, meeting);
    critic.join();
    return after;
}

}  // namespace penstock::kernels
