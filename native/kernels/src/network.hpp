// One network of linear layers that learns: its parameters, moments and gradient, packed for a level, and its forward and
// backward pass.
// Knows no loss: it is given the gradient of its outputs.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "layers.hpp"
#include "muon.hpp"
#include "optimizer.hpp"
#include "penstock/kernels/level.hpp"

namespace penstock::kernels {

// The part of a state that belongs to one network, as flat vectors that are read and written. Those that the optimizer does
// not keep are null: `m` for RMSprop, `v` for SGD, `sum` for all but Muon. All are where no step is taken.
struct Vectors {
    float* parameters;
    float* m;
    float* v;
    float* sum;
};

class TrainedMlp {
public:
    // `free` numbers follow the layers in the flat vector (a Gaussian head's log_std).
    TrainedMlp(const std::vector<LayerShape>& shapes, std::int32_t free, const Optimizer& optimizer, const Level& level);

    std::int64_t flat_size() const { return flat_size_; }
    std::int32_t input_stride() const { return layers_.front().linear.depth; }
    std::int32_t output_stride() const { return layers_.back().linear.padded; }

    // Copies between flat vectors [flat_size] and the packed form, where padding is zero.
    void load(const Vectors& flat);
    void store(const Vectors& flat) const;

    // Begins a minibatch: transposes the weights and sets the gradient to zero.
    void begin();
    // Takes rows <= kRowsAtOnce rows of x [rows, input_stride], zero beyond the inputs. Returns y [rows, output_stride].
    const float* forward(const float* x, std::int32_t rows);
    // The caller writes the gradient of y here: [rows, output_stride], zero beyond the outputs.
    float* output_gradient() { return gradient_[0].data(); }
    // Adds this chunk's gradient. x and rows must be those of the last forward pass.
    void backward(const float* x, std::int32_t rows);

    const float* free_parameters() const { return parameters_.data() + free_offset_; }
    float* free_gradient() { return gradients_.data() + free_offset_; }
    double squared_norm() const;
    // Copies the gradient to and from a flat vector [flat_size].
    void store_gradient(float* flat) const;
    void load_gradient(const float* flat);
    // One step of the optimizer, with the gradient times `scale`. `step` counts from 1.
    void descend(std::int64_t step, double lr, float scale);

private:
    struct Layer {
        Linear linear;
        Elementwise activation;
        std::size_t weight, bias;   // offsets in the packed vectors
        Floats output;              // [kRowsAtOnce, padded]
        Floats before;              // the same before the activation, if its slope needs it
        Floats transposed;          // [outputs, depth]: for all wide layers but the first
    };
    template <typename Copy>
    void each_weight(Copy&& copy) const;
    void weight_gradient(Layer& layer, const float* x, std::ptrdiff_t x_stride, const float* d, std::int32_t rows);
    void input_gradient(const Layer& layer, const float* d, std::int32_t rows, float* to) const;

    Optimizer optimizer_;
    const Level& level_;
    std::vector<Layer> layers_;
    std::int64_t flat_size_ = 0;
    std::int32_t free_;
    std::size_t free_offset_ = 0;
    std::size_t packed_size_ = 0;
    Floats parameters_, m_, v_, sum_, gradients_, zeros_;
    Floats gradient_[2];  // of a layer's outputs
    std::unique_ptr<Muon> muon_;  // null for other optimizers
};

}  // namespace penstock::kernels
