#include "update.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <thread>

namespace penstock::kernels {

namespace {

std::size_t chunk_floats(std::int32_t columns) {
    return static_cast<std::size_t>(kRowsAtOnce) * static_cast<std::size_t>(columns);
}

}  // namespace

Update::Update(const Graph& graph, const Loss& loss, std::int64_t rows, const Level& level)
    : graph_(graph), loss_(loss), actor_(graph.actor, graph.head.gaussian() ? graph.head.size : 0, loss.optimizer, level),
      critic_(graph.critic, 0, loss.optimizer, level), records_(graph, rows, loss.weighed),
      policy_loss_(graph.head, loss, records_.columns(), actor_.output_stride(), level, metrics_),
      actor_features_(chunk_floats(actor_.input_stride())), critic_features_(chunk_floats(critic_.input_stride())) {}

void Update::pack(const Fields& fields, const Statistics& statistics, std::int64_t first, std::int64_t count) {
    records_.pack(fields, statistics, first, count);
}

void Update::load(const Vectors& actor, const Vectors& critic) {
    actor_.load(actor);
    critic_.load(critic);
}

void Update::store(const Vectors& actor, const Vectors& critic) const {
    actor_.store(actor);
    critic_.store(critic);
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

double Update::actor_gradient(const Sample& rows, const std::optional<AdvantageMoments>& whole) {
    actor_.begin();
    policy_loss_.begin(rows, actor_.free_parameters(), whole);
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

std::optional<Squares> Update::gradients(const Minibatches& minibatches, std::int64_t number) {
    if (!records_.collect(minibatches, number, actor_rows_)) return {};
    const double actor = actor_gradient(actor_rows_, whole_);
    return Squares{actor, critic_gradient(actor_rows_)};
}

std::optional<Squares> Update::side_gradient(const Minibatches& minibatches, std::int64_t number, Seat& seat) {
    const bool actor = seat.side == 0;
    Sample& rows = actor ? actor_rows_ : critic_rows_;
    if (!records_.collect(minibatches, number, rows)) return {};
    const double mine = actor ? actor_gradient(rows, whole_) : critic_gradient(rows);
    const double other = seat.exchange(mine);
    return actor ? Squares{mine, other} : Squares{other, mine};
}

void Update::measure(const Squares& squares) {
    metrics_.grad_norm += std::sqrt(squares.actor + squares.critic);
    ++metrics_.count;
    ++metrics_.seen;
}

void Update::finish(const Squares& squares, std::int64_t step, double lr, bool actor, bool critic) {
    const auto scale = [&](double own) {
        const double measured = std::sqrt(loss_.clip_apart ? own : squares.actor + squares.critic);
        return static_cast<float>(std::min(1.0, loss_.max_grad_norm / (measured + 1e-6)));
    };
    if (actor) actor_.descend(step, lr, scale(squares.actor));
    if (critic) critic_.descend(step, lr, scale(squares.critic));
}

void Update::check(const Minibatches& minibatches) const {
    for (std::int64_t i = 0; i < minibatches.count * minibatches.size; ++i)
        if (minibatches.weights[i] != 0.0F &&
            (minibatches.indices[i] < 0 || minibatches.indices[i] >= records_.rows() - behind()))
            throw std::out_of_range("a minibatch names a row that is not there");
}

template <typename Compute>
std::int64_t Update::run_each(const Minibatches& minibatches, std::int64_t step, double lr, bool actor, bool critic,
                              Compute&& compute) {
    for (std::int64_t number = 0; number < minibatches.count; ++number) {
        const std::optional<Squares> found = compute(number);
        if (!found) continue;
        if (actor) measure(*found);
        finish(*found, ++step, lr, actor, critic);
    }
    return step;
}

std::int64_t Update::run(const Minibatches& minibatches, std::int64_t step, double lr, int threads) {
    check(minibatches);
    if (threads == 1)
        return run_each(minibatches, step, lr, true, true, [&](std::int64_t number) { return gradients(minibatches, number); });
    Meeting meeting;
    const auto side = [&](int which) {
        Seat seat{meeting, which};
        return run_each(minibatches, step, lr, which == 0, which == 1,
                        [&](std::int64_t number) { return side_gradient(minibatches, number, seat); });
    };
    std::thread critic([&] { side(1); });
    const std::int64_t after = side(0);
    critic.join();
    return after;
}

double Update::compute_gradients(const Minibatches& one, const std::optional<AdvantageMoments>& whole, int threads) {
    check(one);
    whole_ = whole;
    std::optional<Squares> found;
    if (threads == 1) {
        found = gradients(one, 0);
    } else {
        Meeting meeting;
        const auto side = [&](int which) {
            Seat seat{meeting, which};
            return side_gradient(one, 0, seat);
        };
        std::thread critic([&] { side(1); });
        found = side(0);
        critic.join();
    }
    whole_.reset();
    if (found) {
        measure(*found);
        return actor_rows_.weight;
    }
    ++metrics_.seen;
    actor_.begin();
    critic_.begin();
    return 0.0;
}

void Update::store_gradients(float* actor, float* critic) const {
    actor_.store_gradient(actor);
    critic_.store_gradient(critic);
}

void Update::descend(const float* actor, const float* critic, std::int64_t step, double lr) {
    actor_.load_gradient(actor);
    critic_.load_gradient(critic);
    finish({actor_.squared_norm(), critic_.squared_norm()}, step, lr, true, true);
}

}  // namespace penstock::kernels
