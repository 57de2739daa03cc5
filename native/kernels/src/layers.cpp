#include "layers.hpp"

#include <cstring>
#include <new>

namespace penstock::kernels {

namespace {

constexpr std::size_t kLine = 64;

}  // namespace

Floats::Floats(std::size_t count) {
    const std::size_t bytes = (count * sizeof(float) + kLine - 1) / kLine * kLine + kLine;
    values_.reset(static_cast<float*>(::operator new[](bytes, std::align_val_t{kLine})));
    std::memset(values_.get(), 0, bytes);
}

void Floats::Free::operator()(float* values) const { ::operator delete[](values, std::align_val_t{kLine}); }

std::int64_t LayerShape::parameters() const {
    const std::int64_t in = inputs;
    const std::int64_t out = outputs;
    switch (kind) {
        case LayerKind::lstm: return (in + out + 1) * 4 * out;  // W, U, b
        case LayerKind::gru: return (in + out + 2) * 3 * out;   // W, U, b, d
        case LayerKind::linear: break;
    }
    return (in + 1) * out;  // W, b
}

Linear packed(const LayerShape& shape, const Level& level) {
    return {shape.inputs, shape.outputs, round_up(shape.outputs, level.width), round_up(shape.inputs, level.width),
            shape.outputs <= kNarrowOutputs, nullptr, nullptr};
}

std::size_t packed_weight(const Linear& linear) {
    const std::int64_t floats = linear.narrow ? std::int64_t{linear.outputs} * linear.depth
                                              : std::int64_t{linear.inputs} * linear.padded;
    return static_cast<std::size_t>(floats);
}

}  // namespace penstock::kernels
