// What networks are made of: the shape of a layer, how it is packed for a level, and the memory that it is packed into.
// Knows neither what acts nor what learns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "penstock/kernels/level.hpp"

namespace penstock::kernels {

// Rows that go through a network together: their activations stay in the first two caches.
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

struct LayerShape {
    std::int32_t inputs;
    std::int32_t outputs;
    Elementwise activation;

    // In a network's flat vector: W [in, out], then b.
    std::int64_t parameters() const { return (std::int64_t{inputs} + 1) * outputs; }
};

// A layer as a level takes it, its weight and bias not placed yet.
Linear packed(const LayerShape& shape, const Level& level);

// How many floats a packed weight takes.
std::size_t packed_weight(const Linear& linear);

// Calls copy(packed offset, flat offset, count) for every contiguous run, or number, of a layer's weight.
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
