#include "update.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <stdexcept>

namespace penstock::kernels {

namespace {

// A record begins at a multiple of half a cache line, so that a small one touches one line.
constexpr std::int32_t kRecordStep = 8;

Update::Columns columns_of(const Graph& graph) {
    std::int32_t features = 0;
    for (const Encoding& part : graph.encoding) features += part.size;
    const std::int32_t actions = graph.head.gaussian() ? graph.head.size : 1;
    const std::int32_t end = features + actions + 3;
    return {features, features + actions, features + actions + 1, features + actions + 2,
            (end + kRecordStep - 1) / kRecordStep * kRecordStep};
}

std::size_t chunk_floats(std::int32_t columns) {
    return static_cast<std::size_t>(kRowsAtOnce) * static_cast<std::size_t>(columns);
}

}  // namespace

Update::Update(const Graph& graph, const Loss& loss, std::int64_t rows, const Level& level)
    : graph_(graph), loss_(loss), level_(level), actor_(graph.actor, graph.head.gaussian() ? graph.head.size : 0, level),
      critic_(graph.critic, 0, level), encoder_(graph.encoding, graph.normalize_obs), columns_(columns_of(graph)), rows_(rows),
      records_(static_cast<std::size_t>(rows * columns_.size)),
      actor_features_(chunk_floats(actor_.input_stride())), critic_features_(chunk_floats(critic_.input_stride())),
      standard_(chunk_floats(graph.head.size)), log_ratio_(kRowsAtOnce), ratio_(kRowsAtOnce), slope_(kRowsAtOnce),
      inverse_std_(static_cast<std::size_t>(graph.head.size)), spread_gradient_(static_cast<std::size_t>(graph.head.size)) {}

void Update::pack(const Fields& fields, const Statistics& statistics, std::int64_t first, std::int64_t count) {
    encoder_.load(statistics.obs_mean, statistics.obs_var);
    const double scale = 1.0 / std::sqrt(statistics.value_var + 1e-8);
    for (std::int64_t row = first; row < first + count; ++row) {
        float* record = records_.data() + row * columns_.size;
        encoder_.encode(fields.obs, row, record);
        if (graph_.head.gaussian())
            read_floats(fields.action.row(row), Dtype::f32, graph_.head.size, record + columns_.action);
        else
            // Rows that carry no transition may hold anything; they are never asked for.
            record[columns_.action] = static_cast<float>(
                std::clamp<std::int64_t>(fields.action.at<std::int64_t>(row), 0, graph_.head.size - 1));
        // Without a ratio the policy's own log-probability is what counts.
        record[columns_.log_prob] = loss_.clipped ? fields.log_prob.at<float>(row) : 0.0F;
        record[columns_.advantage] = fields.advantage.at<float>(row);
        const float target = fields.target.at<float>(row);
        record[columns_.target] = graph_.normalize_value ? static_cast<float>((target - statistics.value_mean) * scale) : target;
    }
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

// False if no row of the minibatch counts.
bool Update::collect(const Minibatches& minibatches, std::int64_t number, Sample& rows) const {
    const std::int64_t* indices = minibatches.indices + number * minibatches.size;
    const float* weights = minibatches.weights + number * minibatches.size;
    rows.records.clear();
    rows.shares.clear();
    double total = 0.0;
    for (std::int64_t i = 0; i < minibatches.size; ++i) {
        if (weights[i] == 0.0F) continue;
        rows.records.push_back(records_.data() + indices[i] * columns_.size);
        rows.shares.push_back(weights[i]);
        total += static_cast<double>(weights[i]);
    }
    const auto inverse = static_cast<float>(1.0 / total);
    for (float& share : rows.shares) share *= inverse;
    return !rows.records.empty();
}

void Update::features(const Sample& rows, const Chunk& chunk, float* to) const {
    const auto count = static_cast<std::size_t>(columns_.action);
    const std::ptrdiff_t stride = actor_.input_stride();
    for (std::int32_t r = 0; r < chunk.rows; ++r)
        std::memcpy(to + r * stride, rows.records[chunk.first + static_cast<std::size_t>(r)], count * sizeof(float));
}

double Update::critic_gradient(const Sample& rows) {
    critic_.begin();
    double loss = 0.0;
    const std::ptrdiff_t stride = critic_.output_stride();
    for (std::size_t first = 0; first < rows.records.size(); first += kRowsAtOnce) {
        const Chunk chunk{first, static_cast<std::int32_t>(std::min<std::size_t>(kRowsAtOnce, rows.records.size() - first))};
        features(rows, chunk, critic_features_.data());
        const float* value = critic_.forward(critic_features_.data(), chunk.rows);
        float* d = critic_.output_gradient();
        std::memset(d, 0, chunk_floats(critic_.output_stride()) * sizeof(float));
        const auto coefficient = static_cast<float>(2.0 * loss_.value_coef);
        for (std::int32_t r = 0; r < chunk.rows; ++r) {
            const std::size_t row = first + static_cast<std::size_t>(r);
            const float error = value[r * stride] - rows.records[row][columns_.target];
            loss += static_cast<double>(rows.shares[row] * error * error);
            d[r * stride] = coefficient * rows.shares[row] * error;
        }
        critic_.backward(critic_features_.data(), chunk.rows);
    }
    metrics_.value_loss += loss;
    return critic_.squared_norm();
}

double Update::actor_gradient(const Sample& rows) {
    actor_.begin();
    normalise(rows);
    if (graph_.head.gaussian()) begin_spread();
    for (std::size_t first = 0; first < rows.records.size(); first += kRowsAtOnce) {
        const Chunk chunk{first, static_cast<std::int32_t>(std::min<std::size_t>(kRowsAtOnce, rows.records.size() - first))};
        features(rows, chunk, actor_features_.data());
        const float* head = actor_.forward(actor_features_.data(), chunk.rows);
        std::memset(actor_.output_gradient(), 0, chunk_floats(actor_.output_stride()) * sizeof(float));
        if (graph_.head.gaussian())
            gaussian(rows, chunk, head);
        else
            categorical(rows, chunk, head);
        actor_.backward(actor_features_.data(), chunk.rows);
    }
    if (graph_.head.gaussian())
        // The entropy's slope with respect to log_std is one.
        for (std::size_t k = 0; k < spread_gradient_.size(); ++k)
            actor_.free_gradient()[k] = static_cast<float>(spread_gradient_[k] - loss_.entropy_coef);
    return actor_.squared_norm();
}

// Shifts and scales the advantages of the whole minibatch by their weighted mean and deviation.
void Update::normalise(const Sample& rows) {
    const std::size_t count = rows.records.size();
    advantages_.resize(count);
    for (std::size_t i = 0; i < count; ++i) advantages_[i] = rows.records[i][columns_.advantage];
    if (!loss_.normalize_advantage) return;
    double mean = 0.0, variance = 0.0;
    for (std::size_t i = 0; i < count; ++i) mean += static_cast<double>(rows.shares[i]) * advantages_[i];
    for (std::size_t i = 0; i < count; ++i) {
        const double centred = advantages_[i] - mean;
        variance += rows.shares[i] * centred * centred;
    }
    const double scale = 1.0 / (std::sqrt(variance) + 1e-8);
    for (float& advantage : advantages_) advantage = static_cast<float>((advantage - mean) * scale);
}

void Update::begin_spread() {
    double spread = 0.0;
    for (std::size_t k = 0; k < inverse_std_.size(); ++k) {
        const double log_std = actor_.free_parameters()[k];
        inverse_std_[k] = static_cast<float>(std::exp(-log_std));
        spread += log_std;
        spread_gradient_[k] = 0.0;
    }
    const double size = graph_.head.size;
    log_prob_constant_ = static_cast<float>(spread + 0.5 * size * std::log(2.0 * std::numbers::pi));
    metrics_.entropy += spread + 0.5 * size * (1.0 + std::log(2.0 * std::numbers::pi));
}

// From log_ratio_ to slope_: the gradient of the policy's loss with respect to each row's log-probability.
void Update::policy_loss(const Sample& rows, const Chunk& chunk) {
    if (loss_.clipped)
        surrogate(rows, chunk);
    else
        plain(rows, chunk);
}

void Update::plain(const Sample& rows, const Chunk& chunk) {
    double policy_loss = 0.0;
    for (std::size_t r = 0; r < static_cast<std::size_t>(chunk.rows); ++r) {
        slope_.data()[r] = -rows.shares[chunk.first + r] * advantages_[chunk.first + r];
        policy_loss += static_cast<double>(slope_.data()[r] * log_ratio_.data()[r]);
    }
    metrics_.policy_loss += policy_loss;
}

void Update::surrogate(const Sample& rows, const Chunk& chunk) {
    const auto count = static_cast<std::size_t>(chunk.rows);
    std::memcpy(ratio_.data(), log_ratio_.data(), count * sizeof(float));
    level_.elementwise(Elementwise::exp, ratio_.data(), count);
    const auto low = static_cast<float>(1.0 - loss_.clip_param);
    const auto high = static_cast<float>(1.0 + loss_.clip_param);
    double policy_loss = 0.0, approx_kl = 0.0, clip_fraction = 0.0;
    for (std::size_t r = 0; r < count; ++r) {
        const float ratio = ratio_.data()[r];
        const float share = rows.shares[chunk.first + r];
        const float advantage = advantages_[chunk.first + r];
        const float clipped = std::min(std::max(ratio, low), high);
        const float plain = ratio * advantage;
        const bool cut = clipped * advantage < plain;
        policy_loss -= static_cast<double>(share * (cut ? clipped * advantage : plain));
        approx_kl += static_cast<double>(share * (ratio - 1.0F - log_ratio_.data()[r]));
        clip_fraction += ratio != clipped ? static_cast<double>(share) : 0.0;
        slope_.data()[r] = cut ? 0.0F : -share * plain;
    }
    metrics_.policy_loss += policy_loss;
    metrics_.approx_kl += approx_kl;
    metrics_.clip_fraction += clip_fraction;
}

void Update::gaussian(const Sample& rows, const Chunk& chunk, const float* mean) {
    const auto size = static_cast<std::size_t>(graph_.head.size);
    const auto stride = static_cast<std::size_t>(actor_.output_stride());
    const auto count = static_cast<std::size_t>(chunk.rows);
    float* standard = standard_.data();
    for (std::size_t r = 0; r < count; ++r) {
        const float* record = rows.records[chunk.first + r];
        float squares = 0.0F;
        for (std::size_t k = 0; k < size; ++k) {
            const float z = (record[static_cast<std::size_t>(columns_.action) + k] - mean[r * stride + k]) * inverse_std_[k];
            standard[r * size + k] = z;
            squares += z * z;
        }
        log_ratio_.data()[r] = -0.5F * squares - log_prob_constant_ - record[columns_.log_prob];
    }
    policy_loss(rows, chunk);
    float* d = actor_.output_gradient();
    for (std::size_t r = 0; r < count; ++r) {
        const float slope = slope_.data()[r];
        for (std::size_t k = 0; k < size; ++k) {
            const float z = standard[r * size + k];
            d[r * stride + k] = slope * z * inverse_std_[k];
            spread_gradient_[k] += static_cast<double>(slope * (z * z - 1.0F));
        }
    }
}

void Update::categorical(const Sample& rows, const Chunk& chunk, const float* logits) {
    const auto size = static_cast<std::size_t>(graph_.head.size);
    const auto stride = static_cast<std::size_t>(actor_.output_stride());
    const auto count = static_cast<std::size_t>(chunk.rows);
    float* d = actor_.output_gradient();       // first log-probabilities, at last the gradient
    float* probability = standard_.data();
    for (std::size_t r = 0; r < count; ++r) {
        const float top = *std::max_element(logits + r * stride, logits + r * stride + size);
        for (std::size_t k = 0; k < size; ++k) d[r * stride + k] = probability[r * size + k] = logits[r * stride + k] - top;
    }
    level_.elementwise(Elementwise::exp, probability, count * size);
    for (std::size_t r = 0; r < count; ++r) {
        const float* record = rows.records[chunk.first + r];
        float total = 0.0F;
        for (std::size_t k = 0; k < size; ++k) total += probability[r * size + k];
        const float log_total = std::log(total);
        for (std::size_t k = 0; k < size; ++k) {
            d[r * stride + k] -= log_total;
            probability[r * size + k] /= total;
        }
        const auto action = static_cast<std::size_t>(record[columns_.action]);
        log_ratio_.data()[r] = d[r * stride + action] - record[columns_.log_prob];
    }
    policy_loss(rows, chunk);
    for (std::size_t r = 0; r < count; ++r) {
        const float share = rows.shares[chunk.first + r];
        float entropy = 0.0F;
        for (std::size_t k = 0; k < size; ++k) entropy -= probability[r * size + k] * d[r * stride + k];
        metrics_.entropy += static_cast<double>(share * entropy);
        // d log p(a) / d logit_k is [k = a] - p_k; d entropy / d logit_k is -p_k (log p_k + entropy).
        const float slope = slope_.data()[r];
        const float reward = static_cast<float>(loss_.entropy_coef) * share;
        for (std::size_t k = 0; k < size; ++k) {
            const float p = probability[r * size + k];
            d[r * stride + k] = p * (reward * (d[r * stride + k] + entropy) - slope);
        }
        d[r * stride + static_cast<std::size_t>(rows.records[chunk.first + r][columns_.action])] += slope;
    }
}

// Clips by the norm over both networks and takes a step of those asked for.
void Update::finish(double actor_norm, double critic_norm, std::int64_t step, double lr, bool actor, bool critic) {
    const double norm = std::sqrt(actor_norm + critic_norm);
    const auto scale = static_cast<float>(std::min(1.0, loss_.max_grad_norm / (norm + 1e-6)));
    if (actor) {
        metrics_.grad_norm += norm;
        ++metrics_.count;
        descend(actor_, scale, step, lr);
    }
    if (critic) descend(critic_, scale, step, lr);
}

void Update::descend(TrainedMlp& network, float scale, std::int64_t step, double lr) const {
    if (loss_.optimizer == Optimizer::rmsprop) {
        network.rmsprop(scale, static_cast<float>(lr), static_cast<float>(loss_.epsilon));
        return;
    }
    const auto t = static_cast<double>(step);
    const double bias = 1.0 - std::pow(0.9, t);
    const double root = std::sqrt(1.0 - std::pow(0.999, t));
    network.adam(scale, static_cast<float>(lr * root / bias), static_cast<float>(loss_.epsilon * root));
}

std::int64_t Update::run_both(const Minibatches& minibatches, std::int64_t step, double lr) {
    for (std::int64_t number = 0; number < minibatches.count; ++number) {
        if (!collect(minibatches, number, actor_rows_)) continue;
        const double actor_norm = actor_gradient(actor_rows_);
        finish(actor_norm, critic_gradient(actor_rows_), ++step, lr, true, true);
    }
    return step;
}

std::int64_t Update::run_side(const Minibatches& minibatches, std::int64_t step, double lr, int side, Meeting& meeting) {
    Sample& rows = side == 0 ? actor_rows_ : critic_rows_;
    std::uint64_t met = 0;
    for (std::int64_t number = 0; number < minibatches.count; ++number) {
        if (!collect(minibatches, number, rows)) continue;
        const double mine = side == 0 ? actor_gradient(rows) : critic_gradient(rows);
        const double other = meeting.exchange(side, ++met, mine);
        finish(side == 0 ? mine : other, side == 0 ? other : mine, ++step, lr, side == 0, side == 1);
    }
    return step;
}

std::int64_t Update::run(const Minibatches& minibatches, std::int64_t step, double lr, int threads) {
    for (std::int64_t i = 0; i < minibatches.count * minibatches.size; ++i)
        if (minibatches.weights[i] != 0.0F && (minibatches.indices[i] < 0 || minibatches.indices[i] >= rows_))
            throw std::out_of_range("a minibatch names a row that is not there");
    if (threads == 1) return run_both(minibatches, step, lr);
    Meeting meeting;
    std::thread critic([&] { run_side(minibatches, step, lr, 1, meeting); });
    const std::int64_t after = run_side(minibatches, step, lr, 0, meeting);
    critic.join();
    return after;
}

}  // namespace penstock::kernels
