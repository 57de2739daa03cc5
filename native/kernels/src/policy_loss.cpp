#include "policy_loss.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

namespace penstock::kernels {

PolicyLoss::PolicyLoss(const Head& head, const Loss& loss, const Records::Columns& columns, std::ptrdiff_t stride,
                       const Level& level, Metrics& metrics)
    : head_(head), loss_(loss), columns_(columns), stride_(stride), level_(level), metrics_(metrics),
      standard_(static_cast<std::size_t>(kRowsAtOnce * head.size)), log_ratio_(kRowsAtOnce), ratio_(kRowsAtOnce),
      slope_(kRowsAtOnce), inverse_std_(static_cast<std::size_t>(head.size)),
      spread_gradient_(static_cast<std::size_t>(head.size)) {}

void PolicyLoss::load(const float* free) {
    if (!head_.gaussian()) return;
    spread_ = 0.0;
    for (std::size_t k = 0; k < inverse_std_.size(); ++k) {
        const double log_std = free[k];
        inverse_std_[k] = static_cast<float>(std::exp(-log_std));
        spread_ += log_std;
    }
    log_prob_constant_ = static_cast<float>(spread_ + 0.5 * head_.size * std::log(2.0 * std::numbers::pi));
}

void PolicyLoss::begin(const Sample& rows, const float* free, const std::optional<AdvantageMoments>& whole) {
    normalise(rows, whole);
    load(free);
    if (!head_.gaussian()) return;
    std::fill(spread_gradient_.begin(), spread_gradient_.end(), 0.0);
    metrics_.entropy += spread_ + 0.5 * head_.size * (1.0 + std::log(2.0 * std::numbers::pi));
}

const float* PolicyLoss::log_ratios(const Sample& rows, const Chunk& chunk, const float* outputs, float* scratch) {
    if (head_.gaussian())
        gaussian_ratios(rows, chunk, outputs);
    else
        categorical_ratios(rows, chunk, outputs, scratch);
    return log_ratio_.data();
}

void PolicyLoss::gradient(const Sample& rows, const Chunk& chunk, const float* outputs, float* d) {
    log_ratios(rows, chunk, outputs, d);
    slopes(rows, chunk);
    if (head_.gaussian())
        gaussian(chunk, d);
    else
        categorical(rows, chunk, d);
}

void PolicyLoss::free_gradient(float* free) const {
    if (!head_.gaussian()) return;
    // The entropy's slope with respect to log_std is one.
    for (std::size_t k = 0; k < spread_gradient_.size(); ++k)
        free[k] = static_cast<float>(spread_gradient_[k] - loss_.entropy_coef);
}

void PolicyLoss::normalise(const Sample& rows, const std::optional<AdvantageMoments>& whole) {
    const std::size_t count = rows.records.size();
    advantages_.resize(count);
    for (std::size_t i = 0; i < count; ++i) advantages_[i] = rows.records[i][columns_.advantage];
    if (loss_.normalize_advantage) {
        const AdvantageMoments by = whole ? *whole : moments(rows);
        const double scale = 1.0 / (by.deviation + 1e-8);
        for (float& advantage : advantages_) advantage = static_cast<float>((advantage - by.mean) * scale);
    }
    if (!loss_.weighed) return;
    for (std::size_t i = 0; i < count; ++i) advantages_[i] *= rows.records[i][columns_.importance];
}

AdvantageMoments PolicyLoss::moments(const Sample& rows) const {
    double mean = 0.0, variance = 0.0;
    for (std::size_t i = 0; i < advantages_.size(); ++i) mean += static_cast<double>(rows.shares[i]) * advantages_[i];
    for (std::size_t i = 0; i < advantages_.size(); ++i) {
        const double centred = advantages_[i] - mean;
        variance += rows.shares[i] * centred * centred;
    }
    return {mean, std::sqrt(variance)};
}

void PolicyLoss::slopes(const Sample& rows, const Chunk& chunk) {
    if (loss_.clipped)
        surrogate(rows, chunk);
    else
        plain(rows, chunk);
}

void PolicyLoss::plain(const Sample& rows, const Chunk& chunk) {
    double policy_loss = 0.0;
    for (std::size_t r = 0; r < static_cast<std::size_t>(chunk.rows); ++r) {
        slope_.data()[r] = -rows.shares[chunk.first + r] * advantages_[chunk.first + r];
        policy_loss += static_cast<double>(slope_.data()[r] * log_ratio_.data()[r]);
    }
    metrics_.policy_loss += policy_loss;
}

void PolicyLoss::surrogate(const Sample& rows, const Chunk& chunk) {
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
        // Rows count in these as they do in the loss: one that the policy before the batch would never choose counts nothing.
        const float measured = loss_.weighed ? share * rows.records[chunk.first + r][columns_.importance] : share;
        approx_kl += static_cast<double>(measured * (ratio - 1.0F - log_ratio_.data()[r]));
        clip_fraction += ratio != clipped ? static_cast<double>(measured) : 0.0;
        slope_.data()[r] = cut ? 0.0F : -share * plain;
    }
    metrics_.policy_loss += policy_loss;
    metrics_.approx_kl += approx_kl;
    metrics_.clip_fraction += clip_fraction;
}

void PolicyLoss::gaussian_ratios(const Sample& rows, const Chunk& chunk, const float* mean) {
    const auto size = static_cast<std::size_t>(head_.size);
    const auto stride = static_cast<std::size_t>(stride_);
    float* standard = standard_.data();
    for (std::size_t r = 0; r < static_cast<std::size_t>(chunk.rows); ++r) {
        const float* record = rows.records[chunk.first + r];
        float squares = 0.0F;
        for (std::size_t k = 0; k < size; ++k) {
            const float z = (record[static_cast<std::size_t>(columns_.action) + k] - mean[r * stride + k]) * inverse_std_[k];
            standard[r * size + k] = z;
            squares += z * z;
        }
        log_ratio_.data()[r] = -0.5F * squares - log_prob_constant_ - record[columns_.log_prob];
    }
}

void PolicyLoss::gaussian(const Chunk& chunk, float* d) {
    const auto size = static_cast<std::size_t>(head_.size);
    const auto stride = static_cast<std::size_t>(stride_);
    const float* standard = standard_.data();
    for (std::size_t r = 0; r < static_cast<std::size_t>(chunk.rows); ++r) {
        const float slope = slope_.data()[r];
        for (std::size_t k = 0; k < size; ++k) {
            const float z = standard[r * size + k];
            d[r * stride + k] = slope * z * inverse_std_[k];
            spread_gradient_[k] += static_cast<double>(slope * (z * z - 1.0F));
        }
    }
}

void PolicyLoss::categorical_ratios(const Sample& rows, const Chunk& chunk, const float* logits, float* log_probabilities) {
    const auto size = static_cast<std::size_t>(head_.size);
    const auto stride = static_cast<std::size_t>(stride_);
    const auto count = static_cast<std::size_t>(chunk.rows);
    float* probability = standard_.data();
    for (std::size_t r = 0; r < count; ++r) {
        const float top = *std::max_element(logits + r * stride, logits + r * stride + size);
        for (std::size_t k = 0; k < size; ++k)
            log_probabilities[r * stride + k] = probability[r * size + k] = logits[r * stride + k] - top;
    }
    level_.elementwise(Elementwise::exp, probability, count * size);
    for (std::size_t r = 0; r < count; ++r) {
        const float* record = rows.records[chunk.first + r];
        float total = 0.0F;
        for (std::size_t k = 0; k < size; ++k) total += probability[r * size + k];
        const float log_total = std::log(total);
        for (std::size_t k = 0; k < size; ++k) {
            log_probabilities[r * stride + k] -= log_total;
            probability[r * size + k] /= total;
        }
        const auto action = static_cast<std::size_t>(record[columns_.action]);
        log_ratio_.data()[r] = log_probabilities[r * stride + action] - record[columns_.log_prob];
    }
}

// `d` holds log-probabilities at first, and the gradient at the end.
void PolicyLoss::categorical(const Sample& rows, const Chunk& chunk, float* d) {
    const auto size = static_cast<std::size_t>(head_.size);
    const auto stride = static_cast<std::size_t>(stride_);
    const float* probability = standard_.data();
    for (std::size_t r = 0; r < static_cast<std::size_t>(chunk.rows); ++r) {
        const float share = rows.shares[chunk.first + r];
        float entropy = 0.0F;
        for (std::size_t k = 0; k < size; ++k) entropy -= probability[r * size + k] * d[r * stride + k];
        metrics_.entropy += static_cast<double>(share * entropy);
        // d log p(a) / d logit_k is [k = a] - p_k; d entropy / d logit_k is -p_k (log p_k + entropy).
        const float slope = slope_.data()[r];
        const float bonus = static_cast<float>(loss_.entropy_coef) * share;
        for (std::size_t k = 0; k < size; ++k) {
            const float p = probability[r * size + k];
            d[r * stride + k] = p * (bonus * (d[r * stride + k] + entropy) - slope);
        }
        d[r * stride + static_cast<std::size_t>(rows.records[chunk.first + r][columns_.action])] += slope;
    }
}

}  // namespace penstock::kernels
