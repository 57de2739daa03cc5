// The layers of one network that acts, packed for a level.
// Knows no head and no observation; see network.hpp for networks that learn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "layers.hpp"
#include "penstock/kernels/level.hpp"
#include "recurrent.hpp"

namespace penstock::kernels {

class PackedNetwork {
public:
    PackedNetwork(const std::vector<LayerShape>& shapes, const Level& level);
    // `flat` holds the arrays of each layer, in order.
    void load(const float* flat);
    // Runs the rows of `from`, those of lanes begin, begin + 1, ..., alternating between two buffers; returns the one that
    // holds the outputs. Uses the first `arrays` arrays of `carry`.
    const float* run(const Level& level, const float* from, float* to, float* other, std::ptrdiff_t stride,
                     const Carry& carry, std::int64_t begin, std::int32_t rows);
    std::int32_t widest() const { return widest_; }
    std::int64_t layer_parameters() const { return layer_parameters_; }
    // Of the carry: how many arrays its recurrent layers have, and how many numbers of a lane each holds.
    std::int32_t arrays() const { return static_cast<std::int32_t>(carried_.size()); }
    const std::vector<std::int32_t>& carried() const { return carried_; }

private:
    struct Dense {
        Linear linear;
        Floats weight;
        Floats bias;
    };
    struct Layer {
        LayerShape shape;
        std::variant<Dense, Recurrent> packed;
    };
    static Dense dense(const LayerShape& shape, const Level& level);

    std::vector<Layer> layers_;
    std::vector<std::int32_t> carried_;
    std::int32_t widest_ = 0;
    std::int64_t layer_parameters_ = 0;
};

}  // namespace penstock::kernels
