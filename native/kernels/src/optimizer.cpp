#include "optimizer.hpp"

#include <cmath>
#include <stdexcept>

namespace penstock::kernels {

Optimizer Optimizer::of(const std::string& name, double epsilon, double momentum, double weight_decay) {
    if (name == "adam") return {OptimizerKind::adam, epsilon, 0.0, 0.0};
    if (name == "adamw") return {OptimizerKind::adam, epsilon, 0.0, weight_decay};
    if (name == "sgd") return {OptimizerKind::sgd, 0.0, momentum, 0.0};
    if (name == "rmsprop") return {OptimizerKind::rmsprop, epsilon, 0.0, 0.0};
    if (name == "muon") return {OptimizerKind::muon, epsilon, momentum, weight_decay};
    throw std::invalid_argument("unknown optimizer " + name);
}

const char* Optimizer::m_name() const {
    switch (kind) {
        case OptimizerKind::adam:
        case OptimizerKind::muon: return "adam_m";
        case OptimizerKind::sgd: return "sgd_m";
        case OptimizerKind::rmsprop: return nullptr;
    }
    return nullptr;
}

const char* Optimizer::v_name() const {
    switch (kind) {
        case OptimizerKind::adam:
        case OptimizerKind::muon: return "adam_v";
        case OptimizerKind::sgd: return nullptr;
        case OptimizerKind::rmsprop: return "rmsprop_v";
    }
    return nullptr;
}

const char* Optimizer::sum_name() const { return kind == OptimizerKind::muon ? "muon_m" : nullptr; }

void descend(const Optimizer& optimizer, const Level& level, const Moments& at, std::int64_t step, double lr, float scale) {
    switch (optimizer.kind) {
        case OptimizerKind::adam:
        case OptimizerKind::muon: {
            const auto t = static_cast<double>(step);
            const double bias = 1.0 - std::pow(0.9, t);
            const double root = std::sqrt(1.0 - std::pow(0.999, t));
            const double kept = at.weights ? 1.0 - lr * optimizer.weight_decay : 1.0;
            return level.adam({at.parameter, at.m, at.v, at.gradient, at.count, scale, static_cast<float>(lr * root / bias),
                               static_cast<float>(optimizer.epsilon * root), static_cast<float>(kept)});
        }
        case OptimizerKind::sgd:
            return level.sgd({at.parameter, at.m, at.gradient, at.count, scale, static_cast<float>(lr),
                              static_cast<float>(optimizer.momentum)});
        case OptimizerKind::rmsprop:
            return level.rmsprop({at.parameter, at.v, at.gradient, at.count, scale, static_cast<float>(lr),
                                  static_cast<float>(optimizer.epsilon)});
    }
}

}  // namespace penstock::kernels
