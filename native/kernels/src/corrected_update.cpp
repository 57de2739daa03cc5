#include "corrected_update.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "gae.hpp"

namespace penstock::kernels {

CorrectedUpdate::CorrectedUpdate(const Graph& graph, const Loss& loss, const Lanes& lanes, std::int64_t rows,
                                 const Level& level)
    : Update(graph, loss, rows, level), lanes_(lanes), level_(level), happened_(static_cast<std::size_t>(rows)) {
    if (loss.clipped) throw std::invalid_argument("lanes are corrected for the plain policy gradient");
    if (lanes.steps < 1 || lanes.stride < 1) throw std::invalid_argument("a lane has rows");
}

void CorrectedUpdate::pack(const Fields& fields, const Happened& happened, const Statistics& statistics,
                           std::int64_t first, std::int64_t count) {
    Update::pack(fields, statistics, first, count);
    if (graph_.normalize_value) {
        value_mean_ = statistics.value_mean;
        value_scale_ = std::sqrt(statistics.value_var + 1e-8);
    }
    const auto limit = static_cast<float>(lanes_.reward_limit);
    for (std::int64_t row = first; row < first + count; ++row)
        happened_[static_cast<std::size_t>(row)] = {
            std::clamp(happened.reward.at<float>(row), -limit, limit), happened.log_prob.at<float>(row),
            happened.bootstrap.at<float>(row), happened.size.at<float>(row), happened.terminated.at<bool>(row),
            happened.truncated.at<bool>(row), happened.valid.at<bool>(row)};
}

bool CorrectedUpdate::collect(const Minibatches& minibatches, std::int64_t number, Chosen& lanes, Sample& rows) const {
    const std::int64_t* indices = minibatches.indices + number * minibatches.size;
    const float* weights = minibatches.weights + number * minibatches.size;
    lanes.firsts.clear();
    lanes.rows.clear();
    rows.records.clear();
    rows.shares.clear();
    rows.weight = 0.0;
    for (std::int64_t i = 0; i < minibatches.size; ++i) {
        if (weights[i] == 0.0F) continue;
        lanes.firsts.push_back(indices[i]);
        for (std::int64_t t = 0; t < lanes_.steps; ++t) {
            const std::int64_t row = indices[i] + t * lanes_.stride;
            if (!happened_[static_cast<std::size_t>(row)].valid) continue;
            lanes.rows.push_back(row);
            rows.records.push_back(records_.row(row));
            rows.shares.push_back(weights[i]);
            rows.weight += static_cast<double>(weights[i]);
        }
    }
    const auto inverse = static_cast<float>(1.0 / rows.weight);
    for (float& share : rows.shares) share *= inverse;
    return !rows.records.empty();
}

void CorrectedUpdate::judge_actions(const Chosen& lanes, const Sample& rows) {
    ratios_.resize(lanes.rows.size());
    policy_loss_.load(actor_.free_parameters());
    each_chunk(rows, [&](const Chunk& chunk) {
        records_.features(rows, chunk, actor_features_.data(), actor_.input_stride());
        const float* outputs = actor_.forward(actor_features_.data(), chunk.rows);
        // The records hold no log-probabilities, so these are the current policy's.
        const float* log_prob = policy_loss_.log_ratios(rows, chunk, outputs, actor_.output_gradient());
        for (std::size_t r = 0; r < static_cast<std::size_t>(chunk.rows); ++r) {
            const std::int64_t row = lanes.rows[chunk.first + r];
            ratios_[chunk.first + r] = log_prob[r] - happened_[static_cast<std::size_t>(row)].log_prob;
        }
    });
    level_.elementwise(Elementwise::exp, ratios_.data(), ratios_.size());
}

void CorrectedUpdate::judge_states(const Chosen& lanes) {
    states_.records.clear();
    for (const std::int64_t first : lanes.firsts)
        for (std::int64_t t = 0; t <= lanes_.steps; ++t) states_.records.push_back(records_.row(first + t * lanes_.stride));
    values_.resize(states_.records.size());
    const auto stride = static_cast<std::size_t>(critic_.output_stride());
    each_chunk(states_, [&](const Chunk& chunk) {
        records_.features(states_, chunk, critic_features_.data(), critic_.input_stride());
        const float* value = critic_.forward(critic_features_.data(), chunk.rows);
        for (std::size_t r = 0; r < static_cast<std::size_t>(chunk.rows); ++r)
            values_[chunk.first + r] = static_cast<float>(value[r * stride] * value_scale_ + value_mean_);
    });
}

void CorrectedUpdate::correct(const Chosen& lanes, const Sample& rows, bool actor, bool critic) {
    const auto steps = static_cast<std::size_t>(lanes_.steps);
    const double decay = lanes_.gamma * lanes_.gae_lambda;
    const Records::Columns& columns = records_.columns();
    double weight = 0.0;
    std::size_t at = lanes.rows.size();
    for (std::size_t lane = lanes.firsts.size(); lane-- > 0;) {
        const float* values = values_.data() + lane * (steps + 1);
        double correction = 0.0;
        for (std::size_t t = steps; t-- > 0;) {
            const std::int64_t row = lanes.firsts[lane] + static_cast<std::int64_t>(t) * lanes_.stride;
            const Row& here = happened_[static_cast<std::size_t>(row)];
            if (here.terminated || here.truncated || !here.valid) correction = 0.0;
            if (!here.valid) continue;
            double after = here.truncated ? here.bootstrap : values[t + 1];
            if (here.terminated) after = 0.0;
            const double ratio = ratios_[--at];
            // The order keeps a ratio that is not a number.
            const Importance weights{std::min(ratio, lanes_.rho_bar), std::min(ratio, lanes_.c_bar)};
            const double delta = here.reward + lanes_.gamma * after - values[t];
            const double advantage = trace_back(delta, weights, decay, correction);
            float* record = records_.row(row);
            if (actor) record[columns.advantage] = static_cast<float>(advantage);
            if (critic) record[columns.target] = static_cast<float>((values[t] + correction - value_mean_) / value_scale_);
            weight += rows.shares[at] * weights.rho;
        }
    }
    if (actor) metrics_.rho += weight;
}

double CorrectedUpdate::sized_actor_gradient(const Chosen& lanes, const Sample& rows) {
    if (!loss_.normalize_advantage || whole_) return actor_gradient(rows, whole_);
    double squares = 0.0;
    for (std::size_t i = 0; i < lanes.rows.size(); ++i) {
        const double size = happened_[static_cast<std::size_t>(lanes.rows[i])].size;
        squares += static_cast<double>(rows.shares[i]) * size * size;
    }
    return actor_gradient(rows, AdvantageMoments{0.0, std::sqrt(squares)});
}

std::optional<Squares> CorrectedUpdate::gradients(const Minibatches& minibatches, std::int64_t number) {
    if (!collect(minibatches, number, actor_lanes_, actor_rows_)) return {};
    judge_actions(actor_lanes_, actor_rows_);
    judge_states(actor_lanes_);
    correct(actor_lanes_, actor_rows_, true, true);
    const double actor = sized_actor_gradient(actor_lanes_, actor_rows_);
    return Squares{actor, critic_gradient(actor_rows_)};
}

std::optional<Squares> CorrectedUpdate::side_gradient(const Minibatches& minibatches, std::int64_t number, Seat& seat) {
    const bool actor = seat.side == 0;
    Sample& rows = actor ? actor_rows_ : critic_rows_;
    Chosen& lanes = actor ? actor_lanes_ : critic_lanes_;
    if (!collect(minibatches, number, lanes, rows)) return {};
    if (actor)
        judge_actions(lanes, rows);
    else
        judge_states(lanes);
    // Why both threads may read ratios and values without a lock:
    //   1. Each thread writes its own before this meeting, and the other reads them after it.
    //   2. It writes them again after the next meeting, to which the other comes once it has read them.
    seat.exchange(0.0);
    // They write different columns of the records.
    correct(lanes, rows, actor, !actor);
    const double mine = actor ? sized_actor_gradient(lanes, rows) : critic_gradient(rows);
    const double other = seat.exchange(mine);
    return actor ? Squares{mine, other} : Squares{other, mine};
}

}  // namespace penstock::kernels
