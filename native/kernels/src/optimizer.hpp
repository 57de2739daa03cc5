// How a gradient becomes a step of packed vectors. One place for all native updates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "penstock/kernels/level.hpp"

namespace penstock::kernels {

enum class OptimizerKind : std::int32_t { adam, sgd, rmsprop, muon };

struct Optimizer {
    OptimizerKind kind = OptimizerKind::adam;
    double epsilon = 0.0;       // of Adam, added to the root; of RMSprop, inside the root
    double momentum = 0.0;      // of SGD and Muon
    double weight_decay = 0.0;  // of Adam, where above 0 it is AdamW, and of Muon

    // `name`: adam, adamw, sgd, rmsprop or muon. Throws std::invalid_argument for another one.
    static Optimizer of(const std::string& name, double epsilon, double momentum, double weight_decay);
    // The name of the array of a state that m, v or the sum holds; nullptr if the optimizer keeps none.
    const char* m_name() const;
    const char* v_name() const;
    const char* sum_name() const;
};

// A part of packed vectors. `count` is a multiple of the level's width.
struct Moments {
    float* parameter;
    float* m;
    float* v;
    float* sum;  // of gradients, which Muon keeps for whole vectors
    const float* gradient;
    std::size_t count;
    bool weights;  // weight decay shrinks them

    // `numbers` numbers of a whole vector, from `first` on.
    Moments part(std::size_t first, std::size_t numbers) const {
        return {parameter + first, m + first, v + first, sum, gradient + first, numbers, weights};
    }
};

// One step down the gradient times `scale`. `step` counts Adam's steps from 1. With Muon this is the step of everything but
// its matrices: see muon.hpp.
void descend(const Optimizer& optimizer, const Level& level, const Moments& at, std::int64_t step, double lr, float scale);

}  // namespace penstock::kernels
