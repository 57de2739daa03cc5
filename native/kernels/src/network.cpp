#include "network.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace penstock::kernels {

namespace {

std::size_t floats(std::int32_t rows, std::int32_t columns) {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
}

bool slope_needs_before(Elementwise activation) {
    return activation == Elementwise::silu || activation == Elementwise::gelu;
}

}  // namespace

TrainedMlp::TrainedMlp(const std::vector<LayerShape>& shapes, std::int32_t free, const Optimizer& optimizer, const Level& level)
    : optimizer_(optimizer), level_(level), free_(free) {
    std::int32_t widest = 0;
    for (const LayerShape& shape : shapes) {
        if (shape.kind != LayerKind::linear) throw std::invalid_argument("the native update trains linear layers only");
        Layer layer;
        Linear& linear = layer.linear;
        linear = packed(shape, level);
        layer.activation = shape.activation;
        layer.weight = packed_size_;
        packed_size_ += packed_weight(linear);
        layer.bias = packed_size_;
        packed_size_ += static_cast<std::size_t>(linear.padded);
        layer.output = Floats(floats(kRowsAtOnce, linear.padded));
        if (slope_needs_before(shape.activation)) layer.before = Floats(floats(kRowsAtOnce, linear.padded));
        if (!linear.narrow && !layers_.empty()) layer.transposed = Floats(floats(linear.outputs, linear.depth));
        flat_size_ += shape.parameters();
        widest = std::max({widest, linear.padded, linear.depth});
        layers_.push_back(std::move(layer));
    }
    free_offset_ = packed_size_;
    packed_size_ += static_cast<std::size_t>(round_up(free, level.width));
    flat_size_ += free;
    for (Floats* vector : {&parameters_, &m_, &v_, &gradients_}) *vector = Floats(packed_size_);
    if (optimizer.kind == OptimizerKind::muon) {
        sum_ = Floats(packed_size_);
        std::vector<Matrix> inner;
        for (std::size_t l = 1; l + 1 < layers_.size(); ++l) inner.push_back(matrix_of(layers_[l].linear, layers_[l].weight));
        muon_ = std::make_unique<Muon>(std::move(inner), level);
    }
    zeros_ = Floats(static_cast<std::size_t>(widest));
    for (Floats& gradient : gradient_) gradient = Floats(floats(kRowsAtOnce, widest));
    for (Layer& layer : layers_) {
        layer.linear.weight = parameters_.data() + layer.weight;
        layer.linear.bias = parameters_.data() + layer.bias;
    }
}

// Calls copy(packed offset, flat offset, count) for each contiguous run of the flat vector, which may be a single number.
template <typename Copy>
void TrainedMlp::each_weight(Copy&& copy) const {
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
    copy(free_offset_, flat, static_cast<std::size_t>(free_));
}

void TrainedMlp::load(const Vectors& flat) {
    each_weight([&](std::size_t packed, std::size_t at, std::size_t count) {
        std::memcpy(parameters_.data() + packed, flat.parameters + at, count * sizeof(float));
        if (flat.m != nullptr) std::memcpy(m_.data() + packed, flat.m + at, count * sizeof(float));
        if (flat.v != nullptr) std::memcpy(v_.data() + packed, flat.v + at, count * sizeof(float));
        if (flat.sum != nullptr) std::memcpy(sum_.data() + packed, flat.sum + at, count * sizeof(float));
    });
}

void TrainedMlp::store(const Vectors& flat) const {
    each_weight([&](std::size_t packed, std::size_t at, std::size_t count) {
        std::memcpy(flat.parameters + at, parameters_.data() + packed, count * sizeof(float));
        if (flat.m != nullptr) std::memcpy(flat.m + at, m_.data() + packed, count * sizeof(float));
        if (flat.v != nullptr) std::memcpy(flat.v + at, v_.data() + packed, count * sizeof(float));
        if (flat.sum != nullptr) std::memcpy(flat.sum + at, sum_.data() + packed, count * sizeof(float));
    });
}

void TrainedMlp::store_gradient(float* flat) const {
    each_weight([&](std::size_t packed, std::size_t at, std::size_t count) {
        std::memcpy(flat + at, gradients_.data() + packed, count * sizeof(float));
    });
}

void TrainedMlp::load_gradient(const float* flat) {
    each_weight([&](std::size_t packed, std::size_t at, std::size_t count) {
        std::memcpy(gradients_.data() + packed, flat + at, count * sizeof(float));
    });
}

void TrainedMlp::begin() {
    for (Layer& layer : layers_) {
        if (layer.linear.narrow || &layer == &layers_.front()) continue;
        level_.transpose(layer.linear.weight, layer.linear.padded, layer.linear.inputs, layer.linear.outputs,
                         layer.transposed.data(), layer.linear.depth);
    }
    std::memset(gradients_.data(), 0, packed_size_ * sizeof(float));
}

const float* TrainedMlp::forward(const float* x, std::int32_t rows) {
    std::ptrdiff_t stride = input_stride();
    for (Layer& layer : layers_) {
        float* y = layer.output.data();
        level_.linear(layer.linear, x, stride, rows, y, layer.linear.padded);
        const std::size_t count = floats(rows, layer.linear.padded);
        if (slope_needs_before(layer.activation)) std::memcpy(layer.before.data(), y, count * sizeof(float));
        level_.elementwise(layer.activation, y, count);
        x = y;
        stride = layer.linear.padded;
    }
    return x;
}

void TrainedMlp::backward(const float* x, std::int32_t rows) {
    int at = 0;
    for (std::size_t l = layers_.size(); l-- > 0; at = 1 - at) {
        Layer& layer = layers_[l];
        float* d = gradient_[at].data();
        level_.slope(layer.activation, layer.before.data(), layer.output.data(), d, floats(rows, layer.linear.padded));
        const float* input = l == 0 ? x : layers_[l - 1].output.data();
        weight_gradient(layer, input, layer.linear.depth, d, rows);
        if (l > 0) input_gradient(layer, d, rows, gradient_[1 - at].data());
    }
    if (at == 1) std::swap(gradient_[0], gradient_[1]);
}

void TrainedMlp::weight_gradient(Layer& layer, const float* x, std::ptrdiff_t x_stride, const float* d,
                                 std::int32_t rows) {
    const Linear& linear = layer.linear;
    float* to = gradients_.data() + layer.weight;
    level_.add_rows(d, linear.padded, rows, linear.padded, gradients_.data() + layer.bias);
    if (!linear.narrow) {
        level_.product({x, 1, x_stride, d, linear.padded, to, linear.padded, to, linear.padded, linear.inputs, rows,
                        linear.padded});
        return;
    }
    level_.product({d, 1, linear.padded, x, x_stride, to, linear.depth, to, linear.depth, linear.outputs, rows, linear.depth});
    // The padding of a sigmoid's outputs is one half, not zero. The padding of its weights must stay zero.
    for (std::int32_t o = 0; o < linear.outputs; ++o)
        std::fill(to + static_cast<std::ptrdiff_t>(o) * linear.depth + linear.inputs,
                  to + static_cast<std::ptrdiff_t>(o + 1) * linear.depth, 0.0F);
}

void TrainedMlp::input_gradient(const Layer& layer, const float* d, std::int32_t rows, float* to) const {
    const Linear& linear = layer.linear;
    const float* weight = linear.narrow ? linear.weight : layer.transposed.data();
    level_.product({d, linear.padded, 1, weight, linear.depth, zeros_.data(), 0, to, linear.depth, rows, linear.outputs,
                    linear.depth});
}

double TrainedMlp::squared_norm() const { return level_.squares(gradients_.data(), packed_size_); }

void TrainedMlp::descend(std::int64_t step, double lr, float scale) {
    Moments at{parameters_.data(), m_.data(), v_.data(), sum_.data(), gradients_.data(), packed_size_, true};
    if (muon_ == nullptr) {
        penstock::kernels::descend(optimizer_, level_, at.part(0, free_offset_), step, lr, scale);
    } else {
        for (std::size_t matrix = 0; matrix < muon_->matrices(); ++matrix) muon_->step(matrix, optimizer_, at, lr, scale);
        muon_->step_others(optimizer_, at, 0, free_offset_, step, lr, scale);
    }
    at.weights = false;
    penstock::kernels::descend(optimizer_, level_, at.part(free_offset_, packed_size_ - free_offset_), step, lr, scale);
}

}  // namespace penstock::kernels
