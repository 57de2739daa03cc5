#include "packed_network.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace penstock::kernels {

PackedNetwork::PackedNetwork(const std::vector<LayerShape>& shapes, const Level& level) {
    for (const LayerShape& shape : shapes) {
        widest_ = std::max({widest_, round_up(shape.outputs, level.width), round_up(shape.inputs, level.width)});
        layer_parameters_ += shape.parameters();
        if (shape.kind == LayerKind::linear) {
            layers_.push_back({shape, dense(shape, level)});
        } else {
            Recurrent recurrent(shape, level);
            carried_.insert(carried_.end(), static_cast<std::size_t>(recurrent.arrays()), shape.outputs);
            layers_.push_back({shape, std::move(recurrent)});
        }
    }
}

PackedNetwork::Dense PackedNetwork::dense(const LayerShape& shape, const Level& level) {
    Dense made;
    made.linear = packed(shape, level);
    made.weight = Floats(packed_weight(made.linear));
    made.bias = Floats(static_cast<std::size_t>(made.linear.padded));
    made.linear.weight = made.weight.data();
    made.linear.bias = made.bias.data();
    return made;
}

void PackedNetwork::load(const float* flat) {
    for (Layer& layer : layers_) {
        if (Recurrent* const recurrent = std::get_if<Recurrent>(&layer.packed)) {
            recurrent->load(flat);
        } else {
            Dense& of = std::get<Dense>(layer.packed);
            float* const weight = of.weight.data();
            each_run(of.linear, [&](std::size_t to, std::size_t from, std::size_t count) {
                std::memcpy(weight + to, flat + from, count * sizeof(float));
            });
            const auto outputs = static_cast<std::size_t>(layer.shape.outputs);
            std::memcpy(of.bias.data(), flat + static_cast<std::size_t>(layer.shape.inputs) * outputs, outputs * sizeof(float));
        }
        flat += layer.shape.parameters();
    }
}

const float* PackedNetwork::run(const Level& level, const float* from, float* to, float* other, std::ptrdiff_t stride,
                                const Carry& carry, std::int64_t begin, std::int32_t rows) {
    std::int32_t before = 0;  // arrays of the layers before
    for (Layer& layer : layers_) {
        std::int32_t columns = 0;
        if (Recurrent* const recurrent = std::get_if<Recurrent>(&layer.packed)) {
            recurrent->run(level, from, stride, carry.without(before), begin, rows, to, stride);
            before += recurrent->arrays();
            columns = recurrent->padded();
        } else {
            const Linear& linear = std::get<Dense>(layer.packed).linear;
            level.linear(linear, from, stride, rows, to, stride);
            columns = linear.narrow ? linear.outputs : linear.padded;
            // A layer behind it reads whole vectors. What another call has left there may be no number.
            if (linear.narrow && &layer != &layers_.back())
                for (std::int32_t r = 0; r < rows; ++r)
                    std::fill(to + r * stride + columns, to + r * stride + round_up(columns, level.width), 0.0F);
        }
        if (layer.shape.activation != Elementwise::none) {
            if (columns == stride)
                level.elementwise(layer.shape.activation, to, static_cast<std::size_t>(columns) * static_cast<std::size_t>(rows));
            else
                for (std::int32_t r = 0; r < rows; ++r)
                    level.elementwise(layer.shape.activation, to + r * stride, static_cast<std::size_t>(columns));
        }
        from = to;
        std::swap(to, other);
    }
    return from;
}

}  // namespace penstock::kernels
