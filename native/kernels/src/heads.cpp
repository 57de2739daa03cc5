// What a policy makes of its network's outputs: see penstock.policies.heads. A row's bits depend on that row alone.
#include <cmath>
#include <cstring>

#include "policy.hpp"

namespace penstock::kernels {

namespace {

// NaN comes through.
float clipped(float x, float low, float high) { return x > high ? high : (x < low ? low : x); }

}  // namespace

void Policy::gaussian(const float* mean, const float* noise, const float* explore, const Outputs& out,
                      std::int64_t first, std::int32_t rows) const {
    const std::int32_t size = graph_.head.size;
    for (std::int32_t r = 0; r < rows; ++r) {
        const std::int64_t row = first + r;
        float squares = 0.0F;
        for (std::int32_t k = 0; k < size; ++k) {
            const float z = explore[row] * noise[row * size + k];
            squares += z * z;
            if (out.action)
                (&out.action.at<float>(row))[k] = mean[r * stride_ + k] + z * std_[static_cast<std::size_t>(k)];
        }
        if (out.log_prob) out.log_prob.at<float>(row) = log_prob_constant_ - 0.5F * squares;
        if (out.environment) to_environment(out, row);
    }
}

void Policy::categorical(const float* logits, const float* noise, const float* explore, const Outputs& out,
                         std::int64_t first, std::int32_t rows) {
    const std::int32_t size = graph_.head.size;
    float* shifted = scratch_.data();
    for (std::int32_t r = 0; r < rows; ++r) {
        const float* row_logits = logits + r * stride_;
        float top = row_logits[0];
        for (std::int32_t k = 1; k < size; ++k) top = row_logits[k] > top ? row_logits[k] : top;
        for (std::int32_t k = 0; k < size; ++k) shifted[r * size + k] = row_logits[k] - top;
    }
    if (out.log_prob) level_.elementwise(Elementwise::exp, shifted, static_cast<std::size_t>(rows * size));
    for (std::int32_t r = 0; r < rows; ++r) {
        const std::int64_t row = first + r;
        const float* row_logits = logits + r * stride_;
        std::int64_t chosen = 0;
        float best = row_logits[0] + explore[row] * noise[row * size];
        float top = row_logits[0];
        for (std::int32_t k = 1; k < size; ++k) {
            const float score = row_logits[k] + explore[row] * noise[row * size + k];
            if (score > best) {
                best = score;
                chosen = k;
            }
            top = row_logits[k] > top ? row_logits[k] : top;
        }
        write_chosen(chosen, out, row);
        if (out.log_prob) {
            float total = 0.0F;
            for (std::int32_t k = 0; k < size; ++k) total += shifted[r * size + k];
            out.log_prob.at<float>(row) = (row_logits[chosen] - top) - std::log(total);
        }
    }
}

void Policy::squashed_gaussian(const float* outputs, const float* noise, const float* explore, const Outputs& out,
                               std::int64_t first, std::int32_t rows) {
    const std::int32_t size = graph_.head.size;
    const auto low = static_cast<float>(graph_.head.low);
    const auto high = static_cast<float>(graph_.head.high);
    float* action = scratch_.data();
    for (std::int32_t r = 0; r < rows; ++r)
        for (std::int32_t k = 0; k < size; ++k) action[r * size + k] = clipped(outputs[r * stride_ + size + k], low, high);
    const auto count = static_cast<std::size_t>(rows * size);
    level_.elementwise(Elementwise::exp, action, count);
    for (std::int32_t r = 0; r < rows; ++r)
        for (std::int32_t k = 0; k < size; ++k) {
            const std::int32_t at = r * size + k;
            const float z = explore[first + r] * noise[first * size + at];
            action[at] = outputs[r * stride_ + k] + z * action[at];
        }
    level_.elementwise(Elementwise::tanh, action, count);
    for (std::int32_t r = 0; r < rows; ++r) write_action(action + r * size, out, first + r);
}

void Policy::deterministic(const float* outputs, const float* noise, const float* explore, const Outputs& out,
                           std::int64_t first, std::int32_t rows) {
    const std::int32_t size = graph_.head.size;
    float* action = scratch_.data();
    for (std::int32_t r = 0; r < rows; ++r)
        std::memcpy(action + r * size, outputs + r * stride_, static_cast<std::size_t>(size) * sizeof(float));
    level_.elementwise(Elementwise::tanh, action, static_cast<std::size_t>(rows * size));
    for (std::int32_t r = 0; r < rows; ++r) {
        for (std::int32_t at = r * size; at < (r + 1) * size; ++at)
            action[at] = clipped(action[at] + explore[first + r] * noise[first * size + at], -1.0F, 1.0F);
        write_action(action + r * size, out, first + r);
    }
}

void Policy::epsilon_greedy(const float* outputs, const float* noise, const float* explore, const Outputs& out,
                            std::int64_t first, std::int32_t rows) {
    const std::int32_t size = graph_.head.size;
    for (std::int32_t r = 0; r < rows; ++r) {
        const std::int64_t row = first + r;
        action_values(outputs + r * stride_, q_.data());
        if (out.q) std::memcpy(out.q.row(row), q_.data(), q_.size() * sizeof(float));
        std::int64_t chosen = 0;
        if (noise[2 * row] < explore[row]) {
            // The product may round up to `size`; the caller's noise may be anything.
            const float number = noise[2 * row + 1] * static_cast<float>(size);
            if (number > 0.0F) chosen = number < static_cast<float>(size) ? static_cast<std::int64_t>(number) : size - 1;
        } else {
            for (std::int32_t k = 1; k < size; ++k)
                if (q_[static_cast<std::size_t>(k)] > q_[static_cast<std::size_t>(chosen)]) chosen = k;
        }
        write_chosen(chosen, out, row);
    }
}

void Policy::action_values(const float* outputs, float* q) {
    const Head& head = graph_.head;
    const std::int32_t size = head.size;
    const std::int32_t atoms = head.atoms;
    float* logits = atoms == 1 ? q : scratch_.data();
    if (head.dueling) {
        const float* advantage = outputs + atoms;
        for (std::int32_t i = 0; i < atoms; ++i) {
            float mean = 0.0F;
            for (std::int32_t k = 0; k < size; ++k) mean += advantage[k * atoms + i];
            mean /= static_cast<float>(size);
            for (std::int32_t k = 0; k < size; ++k) logits[k * atoms + i] = outputs[i] + (advantage[k * atoms + i] - mean);
        }
    } else {
        std::memcpy(logits, outputs, static_cast<std::size_t>(size * atoms) * sizeof(float));
    }
    if (atoms == 1) return;
    for (std::int32_t k = 0; k < size; ++k) {
        float* own = logits + k * atoms;
        float top = own[0];
        for (std::int32_t i = 1; i < atoms; ++i) top = own[i] > top ? own[i] : top;
        for (std::int32_t i = 0; i < atoms; ++i) own[i] -= top;
    }
    level_.elementwise(Elementwise::exp, logits, static_cast<std::size_t>(size * atoms));
    for (std::int32_t k = 0; k < size; ++k) {
        float weight = 0.0F;
        float total = 0.0F;
        for (std::int32_t i = 0; i < atoms; ++i) {
            weight += logits[k * atoms + i];
            total += logits[k * atoms + i] * atoms_[static_cast<std::size_t>(i)];
        }
        q[k] = total / weight;
    }
}

void Policy::write_action(const float* action, const Outputs& out, std::int64_t row) const {
    if (out.action) std::memcpy(out.action.row(row), action, static_cast<std::size_t>(graph_.head.size) * sizeof(float));
    if (out.environment) to_environment(out, row);
}

void Policy::write_chosen(std::int64_t chosen, const Outputs& out, std::int64_t row) const {
    if (out.action) out.action.at<std::int64_t>(row) = chosen;
    if (out.environment)
        write_number(out.environment.row(row), out.environment.dtype, 0, static_cast<double>(chosen + out.map->start), 0.0);
}

void Policy::to_environment(const Outputs& out, std::int64_t row) const {
    const ActionMap& map = *out.map;
    const float* action = &out.action.at<float>(row);
    std::byte* to = out.environment.row(row);
    for (std::int32_t k = 0; k < graph_.head.size; ++k) {
        const auto index = static_cast<std::size_t>(k);
        double value = action[k];
        if (map.bounded) {
            value = value > 1.0 ? 1.0 : (value < -1.0 ? -1.0 : value);
            value = map.low[index] + (value + 1.0) / 2.0 * (map.high[index] - map.low[index]);
            value = value > map.high[index] ? map.high[index] : value;
        }
        write_number(to, out.environment.dtype, k, value, map.bounded ? map.low[index] : 0.0);
    }
}

}  // namespace penstock::kernels
