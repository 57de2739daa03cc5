// One vector of a state that gradient steps change, with its moments, its gradient and its target: the weights of one
// network, of an ensemble, or a few plain numbers. Knows no loss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "layers.hpp"
#include "muon.hpp"
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

    // Makes room for what the optimizer remembers. Call it once, before anything is loaded.
    void keep_for(const Optimizer& optimizer);
    // The array of a state with this name, such as "adam_m.critic"; nullptr if it is another vector's or optimizer's.
    Floats* find(const std::string& array, const Optimizer& optimizer);
    void load(Floats& packed, const float* flat);
    void store(const Floats& packed, float* flat) const;
    // Call it after parameters were loaded.
    void refresh();
    // The gradient as a flat vector: what add_sides left, and what descend takes.
    void store_gradient(float* flat) const { store(gradient_, flat); }
    void load_gradient(const float* flat) { load(gradient_, flat); }

    // Each side computes the gradients of half of the members, for all rows. If their number is odd, both sides share the
    // middle one: each computes its gradient for its own rows. A single network and plain numbers are shared.
    bool is_shared(int member) const { return 2 * member + 1 == count_; }
    // Whether a side computes what a member's gradient gets from the rows of side `rows_of`.
    bool computes(int side, int member, int rows_of) const {
        return (is_shared(member) ? rows_of : 2 * member < count_ ? 0 : 1) == side;
    }

    Weights weights(int member) const;
    Weights target(int member) const { return {target_.data() + offset(member), nullptr}; }
    // Where a side puts its gradient of a member that it computes.
    float* gradient(int side, int member = 0) {
        return is_shared(member) && side == 1 ? second_.data() : gradient_.data() + offset(member);
    }
    const float* numbers() const { return parameters_.data(); }

    // Adds both sides' gradients of the shared member: side s does its half of them.
    void add_sides(int side);
    // The sum of squares of one half of the gradient. Call it after add_sides.
    double squares(int side) const;
    // Whether the optimizer steps weight matrices as a whole.
    bool has_matrices() const { return muon_[0] != nullptr; }
    // Muon's step of every second weight matrix, with the gradient times `scale`. Call it after both sides called add_sides.
    void step_matrices(int side, const Optimizer& optimizer, double lr, float scale = 1.0F);
    // The optimizer's step on that half, with the gradient times `scale`. It leaves out matrices that are stepped as a
    // whole. Call it after add_sides. Count the step afterwards.
    void descend(int side, const Optimizer& optimizer, double lr, float scale = 1.0F);
    // Moves that half of the parameters by `share` of the way to what stands in place of their gradient.
    void approach(int side, double share);
    // Moves that half of the target by `tau`.
    void follow(int side, double tau);
    // Copies that half of the parameters to the target.
    void copy_to_target(int side);
    // Transposes the weights of a side's members, and half of the shared one's. Call it after both sides have changed the
    // parameters.
    void transpose(int side);

    std::int64_t steps = 0;  // of the optimizer

private:
    struct Half {
        std::size_t first, count;
    };
    Half half(int side, std::size_t of) const;
    Half half(int side) const { return half(side, size_); }
    Moments moments();
    std::size_t offset(int member) const { return static_cast<std::size_t>(member) * member_size_; }

    std::string name_;
    const Level& level_;
    std::unique_ptr<Stack> stack_;
    int count_;
    bool has_target_;
    std::int64_t flat_size_;
    std::size_t member_size_, size_;
    Floats parameters_, m_, v_, sum_, target_, gradient_, transposed_;
    Floats second_;  // side 1's gradient of the shared member
    std::unique_ptr<Muon> muon_[kSides];
};

}  // namespace penstock::kernels
