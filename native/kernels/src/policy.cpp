#include "policy.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <stdexcept>

namespace penstock::kernels {

Policy::Policy(Graph graph, const Level& level)
    : graph_(std::move(graph)), level_(level), actor_(graph_.actor, level), carried_(actor_.carried()),
      encoder_(graph_.encoding, graph_.normalize_obs) {
    if (graph_.actor.empty()) throw std::invalid_argument("the actor has no layers");
    if (!graph_.critic.empty()) critic_ = std::make_unique<PackedNetwork>(graph_.critic, level);
    if (critic_) carried_.insert(carried_.end(), critic_->carried().begin(), critic_->carried().end());
    const auto fits = [&](const std::vector<LayerShape>& layers, std::int32_t outputs) {
        std::int32_t width = encoder_.features();
        for (const LayerShape& layer : layers) {
            if (layer.inputs != width || layer.outputs < 1)
                throw std::invalid_argument("a layer's inputs are not the outputs of the one before");
            width = layer.outputs;
        }
        if (width != outputs) throw std::invalid_argument("a network's outputs do not fit its head");
    };
    const Head& head = graph_.head;
    if (critic_ && !head.gives_value()) throw std::invalid_argument("a critic is of heads that give a value");
    if (graph_.masked && !head.discrete()) throw std::invalid_argument("an action mask is of heads that choose an action");
    if (head.size < 1 || head.atoms < 1) throw std::invalid_argument("a head has actions");
    fits(graph_.actor, head.outputs() + (head.gives_value() && !critic_ ? 1 : 0));
    if (critic_) fits(graph_.critic, 1);
    const std::int32_t widest = std::max({encoder_.features(), actor_.widest(), critic_ ? critic_->widest() : 0});
    stride_ = round_up(widest, 16);
    const auto rows = static_cast<std::size_t>(kRowsAtOnce * stride_);
    encoded_ = Floats(rows);
    first_ = Floats(rows);
    second_ = Floats(rows);
    scratch_ = Floats(static_cast<std::size_t>(std::max(kRowsAtOnce * head.size, head.size * head.atoms)));
    if (graph_.masked) masked_ = Floats(static_cast<std::size_t>(kRowsAtOnce * head.size));
    std_.assign(static_cast<std::size_t>(head.size), 1.0F);
    q_.assign(static_cast<std::size_t>(head.size), 0.0F);
    for (std::int32_t i = 0; i < head.atoms && head.atoms > 1; ++i)
        atoms_.push_back(static_cast<float>(head.low + (head.high - head.low) * i / (head.atoms - 1)));
}

void Policy::check_load(std::size_t actor, std::size_t critic, std::size_t obs_mean, std::size_t obs_var) const {
    const Head& head = graph_.head;
    const auto wanted = static_cast<std::size_t>(
        head.gaussian() ? std::max(actor_.layer_parameters(), head.log_std + head.size) : actor_.layer_parameters());
    const std::size_t features = encoder_.statistics();
    if (actor < wanted) throw std::invalid_argument("the actor's vector is too short for its layers");
    if (critic != (critic_ ? static_cast<std::size_t>(critic_->layer_parameters()) : 0))
        throw std::invalid_argument("the critic's vector does not fit its layers");
    if (obs_mean != features || obs_var != features)
        throw std::invalid_argument("the observation statistics do not have one number for each feature");
}

void Policy::load(const float* actor, const float* critic, const Statistics& statistics) {
    actor_.load(actor);
    if (critic_) critic_->load(critic);
    encoder_.load(statistics.obs_mean, statistics.obs_var);
    if (graph_.normalize_value) {
        value_mean_ = static_cast<float>(statistics.value_mean);
        value_scale_ = static_cast<float>(std::sqrt(statistics.value_var + 1e-8));
    }
    if (graph_.head.gaussian()) {
        double constant = -0.5 * graph_.head.size * std::log(2.0 * std::numbers::pi);
        for (std::size_t k = 0; k < std_.size(); ++k) {
            const double log_std = actor[graph_.head.log_std + static_cast<std::int64_t>(k)];
            std_[k] = static_cast<float>(std::exp(log_std));
            constant -= log_std;
        }
        log_prob_constant_ = static_cast<float>(constant);
    }
}

void Policy::encode(const Rows* obs, std::int64_t first, std::int32_t rows) {
    for (std::int32_t r = 0; r < rows; ++r) encoder_.encode(obs, first + r, encoded_.data() + r * stride_);
}

const float* Policy::run(PackedNetwork& network, const Carry& carry, std::int64_t first, std::int32_t rows) {
    return network.run(level_, encoded_.data(), first_.data(), second_.data(), stride_, carry, first, rows);
}

const float* Policy::run_critic(const Carry& carry, std::int64_t first, std::int32_t rows) {
    return run(*critic_, carry.without(actor_.arrays()), first, rows);
}

void Policy::write_values(const Rows& value, std::int64_t first, std::int32_t rows, const float* from) const {
    for (std::int32_t r = 0; r < rows; ++r) value.at<float>(first + r) = from[r * stride_] * value_scale_ + value_mean_;
}

void Policy::values(const Inputs& in, Rows value, std::int64_t n) {
    const Carry carry{in.carry.first, in.carry.before, nullptr};
    for (std::int64_t first = 0; first < n; first += kRowsAtOnce) {
        const auto rows = static_cast<std::int32_t>(std::min<std::int64_t>(kRowsAtOnce, n - first));
        encode(in.obs, first, rows);
        const float* outputs = critic_ ? run_critic(carry, first, rows) : run(actor_, carry, first, rows) + graph_.head.outputs();
        write_values(value, first, rows, outputs);
    }
}

void Policy::judge(const Rows* obs, const Rows& action, const Rows& log_prob, const Rows& value, std::int64_t n) {
    const Carry nothing{};
    for (std::int64_t first = 0; first < n; first += kRowsAtOnce) {
        const auto rows = static_cast<std::int32_t>(std::min<std::int64_t>(kRowsAtOnce, n - first));
        encode(obs, first, rows);
        if (critic_) write_values(value, first, rows, run_critic(nothing, first, rows));
        const float* outputs = run(actor_, nothing, first, rows);
        if (!critic_) write_values(value, first, rows, outputs + graph_.head.outputs());
        if (graph_.head.gaussian())
            judge_gaussian(outputs, action, log_prob, first, rows);
        else
            judge_categorical(outputs, action, log_prob, first, rows);
    }
}

void Policy::act(const Inputs& in, const Outputs& out, std::int64_t n) {
    const bool runs_critic = critic_ && (out.value || (in.carry.after != nullptr && critic_->arrays() > 0));
    for (std::int64_t first = 0; first < n; first += kRowsAtOnce) {
        const auto rows = static_cast<std::int32_t>(std::min<std::int64_t>(kRowsAtOnce, n - first));
        encode(in.obs, first, rows);
        if (runs_critic) {
            const float* value = run_critic(in.carry, first, rows);
            if (out.value) write_values(out.value, first, rows, value);
        }
        const float* outputs = run(actor_, in.carry, first, rows);
        if (out.value && !critic_) write_values(out.value, first, rows, outputs + graph_.head.outputs());
        switch (graph_.head.kind) {
            case HeadKind::gaussian: gaussian(outputs, in, out, first, rows); break;
            case HeadKind::categorical: categorical(outputs, in, out, first, rows); break;
            case HeadKind::squashed_gaussian: squashed_gaussian(outputs, in, out, first, rows); break;
            case HeadKind::deterministic: deterministic(outputs, in, out, first, rows); break;
            case HeadKind::epsilon_greedy: epsilon_greedy(outputs, in, out, first, rows); break;
        }
    }
}

}  // namespace penstock::kernels
