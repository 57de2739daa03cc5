// How native code of another extension module samples minibatches: plain functions, so that no C++ type crosses modules.
// A Python capsule of this name carries a pointer to it.
#pragma once

#include <cstdint>

namespace penstock::kernels {

inline constexpr const char* kMinibatchesName = "penstock.Minibatches";

struct Minibatches {
    void* self;
    // Fills the arrays of one minibatch. Returns nullptr, or a text that says why no row can be sampled.
    const char* (*sample)(void* self, std::uint64_t seed, std::uint64_t number, double beta);
    // Gives the rows of the last minibatch new priorities. Returns nullptr, or a text that says what is wrong with one.
    const char* (*rank)(void* self, const float* priorities);
};

}  // namespace penstock::kernels
