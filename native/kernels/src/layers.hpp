// The parts of networks: the shape of a layer, how it is packed for a level, and the memory that it is packed into.
// Both acting and learning use them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "penstock/kernels/level.hpp"

namespace penstock::kernels {

// Number of rows that go through a network together, so that their activations stay in the first two caches.
inline constexpr std::int32_t kRowsAtOnce = 64;

inline std::int32_t round_up(std::int32_t count, std::int32_t step) { return (count + step - 1) / step * step; }

// Floats on a cache line's boundary, zero at first.
class Floats {
public:
    explicit Floats(std::size_t count = 0);
    float* data() { return values_.get(); }
    const float* data() const { return values_.get(); }

private:
    struct Free {
        void operator()(float* values) const;
    };
    std::unique_ptr<float[], Free> values_;
};

// See penstock.policies.layers.
enum class LayerKind : std::int32_t { linear, lstm, gru };

struct LayerShape {
    std::int32_t inputs;
    std::int32_t outputs;
    Elementwise activation;  // of the outputs
    LayerKind kind = LayerKind::linear;

    // Length of its part of a network's flat vector.
    std::int64_t parameters() const;
};

// A linear layer in the form of a level. Its weight and bias have no memory yet.
Linear packed(const LayerShape& shape, const Level& level);

// How many floats a packed weight takes.
std::size_t packed_weight(const Linear& linear);

// Calls copy(packed offset, flat offset, count) for each contiguous run of a linear layer's weight. A run may be a single
// number.
template <typename Copy>
void each_run(const Linear& linear, Copy&& copy) {
    const auto inputs = static_cast<std::size_t>(linear.inputs);
    const auto outputs = static_cast<std::size_t>(linear.outputs);
    for (std::size_t i = 0; i < inputs; ++i) {
        if (linear.narrow)
            for (std::size_t o = 0; o < outputs; ++o)
                copy(o * static_cast<std::size_t>(linear.depth) + i, i * outputs + o, 1);
        else
            copy(i * static_cast<std::size_t>(linear.padded), i * outputs, outputs);
    }
}

}  // namespace penstock::kernels
