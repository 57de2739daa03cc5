#include "policy.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <stdexcept>

namespace penstock::kernels {

Mlp::Mlp(const std::vector<LayerShape>& shapes, const Level& level) {
    for (const LayerShape& shape : shapes) {
        Layer layer;
        Linear& linear = layer.linear;
        linear = packed(shape, level);
        layer.weight = Floats(packed_weight(linear));
        layer.bias = Floats(static_cast<std::size_t>(linear.padded));
        linear.weight = layer.weight.data();
        linear.bias = layer.bias.data();
        layer.activation = shape.activation;
        layers_.push_back(std::move(layer));
        widest_ = std::max({widest_, linear.padded, linear.depth});
        layer_parameters_ += shape.parameters();
    }
}

void Mlp::load(const float* flat) {
    for (Layer& layer : layers_) {
        float* weight = layer.weight.data();
        each_run(layer.linear, [&](std::size_t to, std::size_t from, std::size_t count) {
            std::memcpy(weight + to, flat + from, count * sizeof(float));
        });
        const auto outputs = static_cast<std::size_t>(layer.linear.outputs);
        flat += static_cast<std::size_t>(layer.linear.inputs) * outputs;
        std::memcpy(layer.bias.data(), flat, outputs * sizeof(float));
        flat += outputs;
    }
}

const float* Mlp::run(const Level& level, const float* from, float* to, float* other, std::ptrdiff_t stride,
                      std::int32_t rows) const {
    for (const Layer& layer : layers_) {
        level.linear(layer.linear, from, stride, rows, to, stride);
        if (layer.activation != Elementwise::none) {
            const auto columns = static_cast<std::size_t>(layer.linear.narrow ? layer.linear.outputs : layer.linear.padded);
            if (static_cast<std::ptrdiff_t>(columns) == stride)
                level.elementwise(layer.activation, to, columns * static_cast<std::size_t>(rows));
            else
                for (std::int32_t r = 0; r < rows; ++r) level.elementwise(layer.activation, to + r * stride, columns);
        }
        from = to;
        std::swap(to, other);
    }
    return from;
}

Policy::Policy(Graph graph, const Level& level)
    : graph_(std::move(graph)), level_(level), actor_(graph_.actor, level), encoder_(graph_.encoding, graph_.normalize_obs) {
    if (graph_.actor.empty()) throw std::invalid_argument("the actor has no layers");
    if (!graph_.critic.empty()) critic_ = std::make_unique<Mlp>(graph_.critic, level);
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

const float* Policy::run(const Mlp& network, std::int32_t rows) {
    return network.run(level_, encoded_.data(), first_.data(), second_.data(), stride_, rows);
}

void Policy::write_values(const Rows& value, std::int64_t first, std::int32_t rows, const float* from) const {
    for (std::int32_t r = 0; r < rows; ++r) value.at<float>(first + r) = from[r * stride_] * value_scale_ + value_mean_;
}

void Policy::values(const Rows* obs, Rows value, std::int64_t n) {
    for (std::int64_t first = 0; first < n; first += kRowsAtOnce) {
        const auto rows = static_cast<std::int32_t>(std::min<std::int64_t>(kRowsAtOnce, n - first));
        encode(obs, first, rows);
        write_values(value, first, rows, critic_ ? run(*critic_, rows) : run(actor_, rows) + graph_.head.outputs());
    }
}

void Policy::act(const Rows* obs, const float* noise, const float* explore, const Outputs& out, std::int64_t n) {
    for (std::int64_t first = 0; first < n; first += kRowsAtOnce) {
        const auto rows = static_cast<std::int32_t>(std::min<std::int64_t>(kRowsAtOnce, n - first));
        encode(obs, first, rows);
        if (out.value && critic_) write_values(out.value, first, rows, run(*critic_, rows));
        const float* outputs = run(actor_, rows);
        if (out.value && !critic_) write_values(out.value, first, rows, outputs + graph_.head.outputs());
        switch (graph_.head.kind) {
            case HeadKind::gaussian: gaussian(outputs, noise, explore, out, first, rows); break;
            case HeadKind::categorical: categorical(outputs, noise, explore, out, first, rows); break;
            case HeadKind::squashed_gaussian: squashed_gaussian(outputs, noise, explore, out, first, rows); break;
            case HeadKind::deterministic: deterministic(outputs, noise, explore, out, first, rows); break;
            case HeadKind::epsilon_greedy: epsilon_greedy(outputs, noise, explore, out, first, rows); break;
        }
    }
}

}  // namespace penstock::kernels
