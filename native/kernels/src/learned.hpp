// One vector of a state that gradient steps change, with its moments, its gradient and its target: the weights of one
// network, of an ensemble, or a few plain numbers. Knows no loss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "layers.hpp"
#include "optimizer.hpp"
#include "sides.hpp"
#include "stack.hpp"

namespace penstock::kernels {

class Learned {
public:
    // `count` networks of one shape, one after the other.
    Learned(std::string name, const std::vector<LayerShape>& shapes, int count, bool has_target, const Level& level);
    // `numbers` plain numbers.
    Learned(std::string name, std::int32_t numbers, const Level& level);

    const std::string& name() const { return name_; }
    const Stack& stack() const { return *stack_; }
    int count() const { return count_; }
    std::int64_t flat_size() const { return flat_size_; }

    // The array of a state with this name, such as "adam_m.critic"; nullptr if it is another vector's or optimizer's.
    Floats* find(const std::string& array, const Optimizer& optimizer);
    void load(Floats& packed, const float* flat);
    void store(const Floats& packed, float* flat) const;
    // Call it after parameters were loaded.
    void refresh();
    // The gradient as a flat vector: what add_sides left, and what descend takes.
    void store_gradient(float* flat) const { store(gradients_[0], flat); }
    void load_gradient(const float* flat) { load(gradients_[0], flat); }

    Weights weights(int member) const;
    Weights target(int member) const { return {target_.data() + offset(member), nullptr}; }
    float* gradient(int side, int member = 0) { return gradients_[side].data() + offset(member); }
    void clear(int side);  // the gradient of one side
    const float* numbers() const { return parameters_.data(); }

    // Adds both halves' gradients: side s does its half of the vector.
    void add_sides(int side);
    // The sum of squares of that half of the gradient. Call it after add_sides.
    double squares(int side) const;
    // The optimizer's step on that half, with the gradient times `scale`. Call it after add_sides, with `steps` counted.
    void descend(int side, const Optimizer& optimizer, double lr, float scale = 1.0F);
    // Moves that half of the parameters by `share` of the way to what stands in place of their gradient.
    void approach(int side, double share);
    // Moves that half of the target by `tau`.
    void follow(int side, double tau);
    // Copies that half of the parameters to the target.
    void copy_to_target(int side);
    // Transposes every second layer. Call it after both sides have changed the parameters.
    void transpose(int side);

    std::int64_t steps = 0;  // of the optimizer

private:
    struct Half {
        std::size_t first, count;
    };
    Half half(int side) const;
    std::size_t offset(int member) const { return static_cast<std::size_t>(member) * member_size_; }

    std::string name_;
    const Level& level_;
    std::unique_ptr<Stack> stack_;
    int count_;
    bool has_target_;
    std::int64_t flat_size_;
    std::size_t member_size_, size_;
    Floats parameters_, m_, v_, target_, gradients_[kSides], transposed_;
};

}  // namespace penstock::kernels
