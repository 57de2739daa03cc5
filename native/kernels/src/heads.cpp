// From a network's outputs to actions, log-probabilities and values: see penstock.policies.heads. A row's bits depend only
// on that row.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "policy.hpp"

namespace penstock::kernels {

namespace {

// Logit of an action in a row that allows nothing; FORBIDDEN of penstock.policies.heads. It is finite, so that the
// log-probability of such a row is a number: learning multiplies it by a weight of 0, and 0 times NaN is NaN.
constexpr float kNothingAllowed = -1e9F;

// NaN gives NaN.
float clipped(float x, float low, float high) { return x > high ? high : (x < low ? low : x); }

// Which actions of one row are allowed; see Inputs::mask.
class Allowed {
public:
    Allowed(const Inputs& in, std::int64_t row, std::int32_t size)
        : mask_(in.mask ? &in.mask.at<std::uint8_t>(row) : nullptr), size_(size) {}

    bool operator[](std::int64_t action) const { return mask_ == nullptr || mask_[action] != 0; }
    std::int32_t count() const {
        if (mask_ == nullptr) return size_;
        std::int32_t found = 0;
        for (std::int32_t k = 0; k < size_; ++k) found += mask_[k] != 0 ? 1 : 0;
        return found;
    }
    // The allowed action number `index`; 0 if nothing is allowed.
    std::int64_t at(std::int64_t index) const {
        if (mask_ == nullptr) return index;
        for (std::int32_t k = 0; k < size_; ++k)
            if (mask_[k] != 0 && index-- == 0) return k;
        return 0;
    }

private:
    const std::uint8_t* mask_;
    std::int32_t size_;
};

}  // namespace

void Policy::gaussian(const float* mean, const Inputs& in, const Outputs& out, std::int64_t first,
                      std::int32_t rows) const {
    const std::int32_t size = graph_.head.size;
    for (std::int32_t r = 0; r < rows; ++r) {
        const std::int64_t row = first + r;
        float squares = 0.0F;
        for (std::int32_t k = 0; k < size; ++k) {
            const float z = in.explore[row] * in.noise[row * size + k];
            squares += z * z;
            if (out.action)
                (&out.action.at<float>(row))[k] = mean[r * stride_ + k] + z * std_[static_cast<std::size_t>(k)];
        }
        if (out.log_prob) out.log_prob.at<float>(row) = log_prob_constant_ - 0.5F * squares;
        if (out.environment) to_environment(out, row);
    }
}

void Policy::categorical(const float* logits, const Inputs& in, const Outputs& out, std::int64_t first,
                         std::int32_t rows) {
    const std::int32_t size = graph_.head.size;
    const std::ptrdiff_t stride = in.mask ? size : stride_;
    if (in.mask) logits = masked_logits(logits, in, first, rows);
    const float* shifted = scratch_.data();
    if (out.log_prob) exponentials(logits, stride, rows);
    for (std::int32_t r = 0; r < rows; ++r) {
        const std::int64_t row = first + r;
        const float* row_logits = logits + r * stride;
        // Begins with an allowed action, so that none other is chosen even where its score is not a number.
        std::int64_t chosen = Allowed(in, row, size).at(0);
        float best = row_logits[chosen] + in.explore[row] * in.noise[row * size + chosen];
        float top = row_logits[chosen];
        for (std::int64_t k = chosen + 1; k < size; ++k) {
            const float score = row_logits[k] + in.explore[row] * in.noise[row * size + k];
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

void Policy::exponentials(const float* logits, std::ptrdiff_t stride, std::int32_t rows) {
    const std::int32_t size = graph_.head.size;
    float* to = scratch_.data();
    for (std::int32_t r = 0; r < rows; ++r) {
        const float* row_logits = logits + r * stride;
        float top = row_logits[0];
        for (std::int32_t k = 1; k < size; ++k) top = row_logits[k] > top ? row_logits[k] : top;
        for (std::int32_t k = 0; k < size; ++k) to[r * size + k] = row_logits[k] - top;
    }
    level_.elementwise(Elementwise::exp, to, static_cast<std::size_t>(rows * size));
}

void Policy::judge_gaussian(const float* mean, const Rows& action, const Rows& log_prob, std::int64_t first,
                            std::int32_t rows) const {
    for (std::int32_t r = 0; r < rows; ++r) {
        const float* given = &action.at<float>(first + r);
        float squares = 0.0F;
        for (std::int32_t k = 0; k < graph_.head.size; ++k) {
            const float z = (given[k] - mean[r * stride_ + k]) / std_[static_cast<std::size_t>(k)];
            squares += z * z;
        }
        log_prob.at<float>(first + r) = log_prob_constant_ - 0.5F * squares;
    }
}

void Policy::judge_categorical(const float* logits, const Rows& action, const Rows& log_prob, std::int64_t first,
                               std::int32_t rows) {
    const std::int32_t size = graph_.head.size;
    exponentials(logits, stride_, rows);
    const float* shifted = scratch_.data();
    for (std::int32_t r = 0; r < rows; ++r) {
        const float* row_logits = logits + r * stride_;
        float top = row_logits[0], total = 0.0F;
        for (std::int32_t k = 0; k < size; ++k) {
            top = row_logits[k] > top ? row_logits[k] : top;
            total += shifted[r * size + k];
        }
        // Rows without a transition may hold any numbers.
        const std::int64_t given = action.at<std::int64_t>(first + r);
        const std::int64_t chosen = given < 0 || given >= size ? 0 : given;
        log_prob.at<float>(first + r) = (row_logits[chosen] - top) - std::log(total);
    }
}

const float* Policy::masked_logits(const float* logits, const Inputs& in, std::int64_t first, std::int32_t rows) {
    const std::int32_t size = graph_.head.size;
    float* to = masked_.data();
    for (std::int32_t r = 0; r < rows; ++r) {
        const Allowed allowed(in, first + r, size);
        const float forbidden = allowed.count() == 0 ? kNothingAllowed : -std::numeric_limits<float>::infinity();
        for (std::int32_t k = 0; k < size; ++k) *to++ = allowed[k] ? logits[r * stride_ + k] : forbidden;
    }
    return masked_.data();
}

void Policy::squashed_gaussian(const float* outputs, const Inputs& in, const Outputs& out, std::int64_t first,
                               std::int32_t rows) {
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
            const float z = in.explore[first + r] * in.noise[first * size + at];
            action[at] = outputs[r * stride_ + k] + z * action[at];
        }
    level_.elementwise(Elementwise::tanh, action, count);
    for (std::int32_t r = 0; r < rows; ++r) write_action(action + r * size, out, first + r);
}

void Policy::deterministic(const float* outputs, const Inputs& in, const Outputs& out, std::int64_t first,
                           std::int32_t rows) {
    const std::int32_t size = graph_.head.size;
    float* action = scratch_.data();
    for (std::int32_t r = 0; r < rows; ++r)
        std::memcpy(action + r * size, outputs + r * stride_, static_cast<std::size_t>(size) * sizeof(float));
    level_.elementwise(Elementwise::tanh, action, static_cast<std::size_t>(rows * size));
    for (std::int32_t r = 0; r < rows; ++r) {
        for (std::int32_t at = r * size; at < (r + 1) * size; ++at)
            action[at] = clipped(action[at] + in.explore[first + r] * in.noise[first * size + at], -1.0F, 1.0F);
        write_action(action + r * size, out, first + r);
    }
}

void Policy::epsilon_greedy(const float* outputs, const Inputs& in, const Outputs& out, std::int64_t first,
                            std::int32_t rows) {
    const std::int32_t size = graph_.head.size;
    for (std::int32_t r = 0; r < rows; ++r) {
        const std::int64_t row = first + r;
        action_values(outputs + r * stride_, q_.data());
        if (out.q) std::memcpy(out.q.row(row), q_.data(), q_.size() * sizeof(float));
        const Allowed allowed(in, row, size);
        std::int64_t chosen = 0;
        if (in.noise[2 * row] < in.explore[row]) {
            // The product may round up to `count`, and the caller may give any noise.
            const std::int32_t count = allowed.count();
            const float number = in.noise[2 * row + 1] * static_cast<float>(count);
            if (number > 0.0F) chosen = number < static_cast<float>(count) ? static_cast<std::int64_t>(number) : count - 1;
            chosen = allowed.at(chosen);
        } else {
            chosen = allowed.at(0);
            for (std::int64_t k = chosen + 1; k < size; ++k)
                if (q_[static_cast<std::size_t>(k)] > q_[static_cast<std::size_t>(chosen)] && allowed[k]) chosen = k;
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
        double otherwise = 0.0;  // for a NaN where the environment wants an integer
        if (map.bounded) {
            value = value > 1.0 ? 1.0 : (value < -1.0 ? -1.0 : value);
            value = map.low[index] + (value + 1.0) / 2.0 * (map.high[index] - map.low[index]);
            value = value > map.high[index] ? map.high[index] : value;
            otherwise = map.low[index];
        } else if (!map.low.empty()) {
            value = value < map.low[index] ? map.low[index] : value;
            value = value > map.high[index] ? map.high[index] : value;
            otherwise = std::clamp(0.0, map.low[index], map.high[index]);
        }
        write_number(to, out.environment.dtype, k, value, otherwise);
    }
}

}  // namespace penstock::kernels
