// Networks, encodings and optimizers as Python passes them: tuples of plain values.
#pragma once

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "encoder.hpp"
#include "layers.hpp"
#include "optimizer.hpp"
#include "penstock/kernels/level.hpp"

namespace penstock::kernels {

// kind, inputs, outputs, activation
using LayerTuple = std::tuple<std::string, std::int32_t, std::int32_t, std::string>;
// one-hot, size, start
using EncodingTuple = std::tuple<bool, std::int32_t, std::int64_t>;
// name, epsilon, momentum, weight decay
using OptimizerTuple = std::tuple<std::string, double, double, double>;

inline const Level& level_or_best(const std::optional<std::string>& name) {
    return name ? level(name->c_str()) : best_level();
}

inline Elementwise elementwise_of(const std::string& name) {
    constexpr const char* names[] = {"none", "tanh", "relu", "elu", "silu", "gelu", "sigmoid", "exp"};
    for (std::int32_t i = 0; i < 8; ++i)
        if (name == names[i]) return static_cast<Elementwise>(i);
    throw std::invalid_argument("unknown elementwise function " + name);
}

inline LayerKind layer_kind_of(const std::string& name) {
    if (name == "linear") return LayerKind::linear;
    if (name == "lstm") return LayerKind::lstm;
    if (name == "gru") return LayerKind::gru;
    throw std::invalid_argument("unknown layer " + name);
}

inline std::vector<LayerShape> layers_of(const std::vector<LayerTuple>& tuples) {
    std::vector<LayerShape> layers;
    for (const auto& [kind, inputs, outputs, activation] : tuples)
        layers.push_back({inputs, outputs, elementwise_of(activation), layer_kind_of(kind)});
    return layers;
}

inline std::vector<Encoding> encodings_of(const std::vector<EncodingTuple>& tuples) {
    std::vector<Encoding> encodings;
    for (const auto& [one_hot, width, start] : tuples) encodings.push_back({one_hot, width, start});
    return encodings;
}

inline Optimizer optimizer_of(const OptimizerTuple& tuple) {
    const auto& [name, epsilon, momentum, weight_decay] = tuple;
    return Optimizer::of(name, epsilon, momentum, weight_decay);
}

}  // namespace penstock::kernels
