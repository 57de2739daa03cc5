// An MLP as places in packed vectors, and one thread's passes through it. Several networks of one shape share a
// Stack; each thread has a Pass of its own. Knows no loss and no optimizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "layers.hpp"
#include "muon.hpp"
#include "penstock/kernels/level.hpp"

namespace penstock::kernels {

class Stack {
public:
    // Throws std::invalid_argument for layers that are not linear.
    Stack(const std::vector<LayerShape>& shapes, const Level& level);

    struct Layer {
        Linear linear;           // without memory; it applies a ReLU itself
        Elementwise activation;
        std::size_t weight, bias;  // offsets in a packed vector
        std::size_t transposed;    // offset of [outputs, depth] in a vector of transposed weights; wide layers behind the first
    };

    const std::vector<Layer>& layers() const { return layers_; }
    std::int64_t flat_size() const { return flat_size_; }
    std::size_t packed_size() const { return packed_size_; }
    std::size_t transposed_size() const { return transposed_size_; }
    std::int32_t input_stride() const { return layers_.front().linear.depth; }
    std::int32_t outputs() const { return layers_.back().linear.outputs; }
    std::int32_t output_stride() const { return layers_.back().linear.padded; }
    std::int32_t widest() const { return widest_; }

    // Copies between a flat vector and the packed form, where padding is zero.
    void pack(const float* flat, float* packed) const;
    void unpack(const float* packed, float* flat) const;
    // The weight matrices between hidden layers, in a packed vector: all but the first and the last layer's.
    std::vector<Matrix> inner_matrices() const;
    // Transposes each layer's weight, or a share of its rows: number `share` of `shares`, counted from 0.
    void transpose(const float* packed, float* transposed, std::int32_t share, std::int32_t shares, const Level& level) const;

private:
    template <typename Copy>
    void each_run_of_weights(Copy&& copy) const;

    std::vector<Layer> layers_;
    std::int64_t flat_size_ = 0;
    std::size_t packed_size_ = 0, transposed_size_ = 0;
    std::int32_t widest_ = 0;
};

// Parameters of one network in packed form. `transposed` is null for a network that only runs forward.
struct Weights {
    const float* packed;
    const float* transposed;
};

class Pass {
public:
    Pass(const Stack& stack, const Level& level);

    // Takes rows <= kRowsAtOnce rows of x [rows, input_stride], zero beyond the inputs. Returns y [rows, output_stride].
    const float* forward(const Weights& of, const float* x, std::int32_t rows);
    // What the last forward pass returned.
    const float* last() const { return outputs_.back().data(); }
    // The caller writes the gradient of y here, [rows, output_stride], zero beyond the outputs, before each backward pass.
    float* output_gradient() { return gradient_[0].data(); }
    // Writes (`first`) or adds the gradient of the last forward pass to `gradient`, a packed vector. x and rows are those
    // of that pass.
    void backward(const Weights& of, const float* x, std::int32_t rows, float* gradient, bool first);
    // Writes only the gradient of `count` columns of x, from column `first` on, to `to` [rows, count].
    void backward_to_inputs(const Weights& of, std::int32_t rows, std::int32_t first, std::int32_t count, float* to);

private:
    void slope(std::size_t layer, float* d, std::int32_t rows) const;
    void weight_gradient(const Stack::Layer& layer, const float* x, const float* d, std::int32_t rows, float* to, bool first);
    void input_gradient(const Stack::Layer& layer, const Weights& of, const float* d, std::int32_t rows, float* to) const;

    const Stack& stack_;
    const Level& level_;
    std::vector<Floats> outputs_;  // of each layer, [kRowsAtOnce, padded]
    std::vector<Floats> before_;   // the same before the activation, where its slope needs that
    Floats gradient_[2];           // of a layer's outputs
    Floats zeros_;
};

}  // namespace penstock::kernels
