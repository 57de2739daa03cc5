#include "stack.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace penstock::kernels {

namespace {

std::size_t floats(std::int32_t rows, std::int32_t columns) {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
}

bool slope_needs_before(Elementwise activation) {
    return activation == Elementwise::silu || activation == Elementwise::gelu;
}

}  // namespace

Stack::Stack(const std::vector<LayerShape>& shapes, const Level& level) {
    for (const LayerShape& shape : shapes) {
        if (shape.kind != LayerKind::linear) throw std::invalid_argument("the native update trains linear layers only");
        Layer layer{packed(shape, level), shape.activation, packed_size_, 0, transposed_size_};
        layer.linear.rectified = shape.activation == Elementwise::relu;
        const Linear& linear = layer.linear;
        packed_size_ += packed_weight(linear);
        layer.bias = packed_size_;
        packed_size_ += static_cast<std::size_t>(linear.padded);
        if (!linear.narrow && !layers_.empty()) transposed_size_ += floats(linear.outputs, linear.depth);
        flat_size_ += shape.parameters();
        widest_ = std::max({widest_, linear.padded, linear.depth});
        layers_.push_back(layer);
    }
}

// Calls copy(packed offset, flat offset, count) for each contiguous run of a flat vector, which may be a single number.
template <typename Copy>
void Stack::each_run_of_weights(Copy&& copy) const {
    std::size_t flat = 0;
    for (const Layer& layer : layers_) {
        each_run(layer.linear, [&](std::size_t to, std::size_t from, std::size_t count) {
            copy(layer.weight + to, flat + from, count);
        });
        const auto outputs = static_cast<std::size_t>(layer.linear.outputs);
        flat += static_cast<std::size_t>(layer.linear.inputs) * outputs;
        copy(layer.bias, flat, outputs);
        flat += outputs;
    }
}

void Stack::pack(const float* flat, float* packed) const {
    each_run_of_weights([&](std::size_t to, std::size_t from, std::size_t count) {
        std::memcpy(packed + to, flat + from, count * sizeof(float));
    });
}

void Stack::unpack(const float* packed, float* flat) const {
    each_run_of_weights([&](std::size_t from, std::size_t to, std::size_t count) {
        std::memcpy(flat + to, packed + from, count * sizeof(float));
    });
}

std::vector<Matrix> Stack::inner_matrices() const {
    std::vector<Matrix> found;
    for (std::size_t l = 1; l + 1 < layers_.size(); ++l) found.push_back(matrix_of(layers_[l].linear, layers_[l].weight));
    return found;
}

void Stack::transpose(const float* packed, float* transposed, std::int32_t share, std::int32_t shares,
                      const Level& level) const {
    for (const Layer& layer : layers_) {
        const Linear& linear = layer.linear;
        if (linear.narrow || &layer == &layers_.front()) continue;
        const std::int32_t first = linear.inputs * share / shares, end = linear.inputs * (share + 1) / shares;
        level.transpose(packed + layer.weight + std::ptrdiff_t{first} * linear.padded, linear.padded, end - first, linear.outputs,
                        transposed + layer.transposed + first, linear.depth);
    }
}

Pass::Pass(const Stack& stack, const Level& level)
    : stack_(stack), level_(level), zeros_(static_cast<std::size_t>(stack.widest())) {
    for (const Stack::Layer& layer : stack.layers()) {
        const std::size_t count = floats(kRowsAtOnce, layer.linear.padded);
        outputs_.emplace_back(count);
        before_.emplace_back(slope_needs_before(layer.activation) ? count : 0);
    }
    for (Floats& gradient : gradient_) gradient = Floats(floats(kRowsAtOnce, stack.widest()));
}

const float* Pass::forward(const Weights& of, const float* x, std::int32_t rows) {
    std::ptrdiff_t stride = stack_.input_stride();
    for (std::size_t l = 0; l < stack_.layers().size(); ++l) {
        const Stack::Layer& layer = stack_.layers()[l];
        Linear linear = layer.linear;
        linear.weight = of.packed + layer.weight;
        linear.bias = of.packed + layer.bias;
        float* const y = outputs_[l].data();
        level_.linear(linear, x, stride, rows, y, linear.padded);
        const std::size_t count = floats(rows, linear.padded);
        if (slope_needs_before(layer.activation)) std::memcpy(before_[l].data(), y, count * sizeof(float));
        if (!linear.rectified) level_.elementwise(layer.activation, y, count);
        x = y;
        stride = linear.padded;
    }
    return x;
}

void Pass::slope(std::size_t l, float* d, std::int32_t rows) const {
    const Stack::Layer& layer = stack_.layers()[l];
    level_.slope(layer.activation, before_[l].data(), outputs_[l].data(), d, floats(rows, layer.linear.padded));
}

void Pass::backward(const Weights& of, const float* x, std::int32_t rows, float* gradient, bool first) {
    float *d = gradient_[0].data(), *next = gradient_[1].data();
    for (std::size_t l = stack_.layers().size(); l-- > 0; std::swap(d, next)) {
        const Stack::Layer& layer = stack_.layers()[l];
        slope(l, d, rows);
        weight_gradient(layer, l == 0 ? x : outputs_[l - 1].data(), d, rows, gradient, first);
        if (l > 0) input_gradient(layer, of, d, rows, next);
    }
}

void Pass::backward_to_inputs(const Weights& of, std::int32_t rows, std::int32_t first, std::int32_t count, float* to) {
    float *d = gradient_[0].data(), *next = gradient_[1].data();
    for (std::size_t l = stack_.layers().size(); l-- > 1; std::swap(d, next)) {
        slope(l, d, rows);
        input_gradient(stack_.layers()[l], of, d, rows, next);
    }
    slope(0, d, rows);
    const Stack::Layer& layer = stack_.layers().front();
    const Linear& linear = layer.linear;
    const float* const weight = of.packed + layer.weight;
    if (!linear.narrow) {
        // An input's weights are contiguous, as those of an output are in a narrow layer. So few inputs are read like one.
        level_.linear({linear.outputs, count, count, linear.padded, true, weight + std::ptrdiff_t{first} * linear.padded, zeros_.data()},
                      d, linear.padded, rows, to, count);
        return;
    }
    for (std::int32_t r = 0; r < rows; ++r)
        for (std::int32_t k = 0; k < count; ++k) {
            float total = 0.0F;
            for (std::int32_t o = 0; o < linear.outputs; ++o) total += d[r * linear.padded + o] * weight[o * linear.depth + first + k];
            to[r * count + k] = total;
        }
}

void Pass::weight_gradient(const Stack::Layer& layer, const float* x, const float* d, std::int32_t rows, float* to,
                           bool first) {
    const Linear& linear = layer.linear;
    float* const bias = to + layer.bias;
    float* const weight = to + layer.weight;
    if (first) std::fill_n(bias, linear.padded, 0.0F);
    level_.add_rows(d, linear.padded, rows, linear.padded, bias);
    if (!linear.narrow) {
        level_.product({x, 1, linear.depth, d, linear.padded, first ? zeros_.data() : weight, first ? 0 : linear.padded, weight,
                  linear.padded, linear.inputs, rows, linear.padded});
        return;
    }
    level_.product({d, 1, linear.padded, x, linear.depth, first ? zeros_.data() : weight, first ? 0 : linear.depth, weight,
              linear.depth, linear.outputs, rows, linear.depth});
    // The padding of a sigmoid's outputs is one half, not zero. The padding of its weights must stay zero.
    for (std::int32_t o = 0; o < linear.outputs; ++o)
        std::fill(weight + static_cast<std::ptrdiff_t>(o) * linear.depth + linear.inputs,
                  weight + static_cast<std::ptrdiff_t>(o + 1) * linear.depth, 0.0F);
}

void Pass::input_gradient(const Stack::Layer& layer, const Weights& of, const float* d, std::int32_t rows,
                          float* to) const {
    const Linear& linear = layer.linear;
    const float* const b = linear.narrow ? of.packed + layer.weight : of.transposed + layer.transposed;
    level_.product({d, linear.padded, 1, b, linear.depth, zeros_.data(), 0, to, linear.depth, rows, linear.outputs, linear.depth});
}

}  // namespace penstock::kernels
