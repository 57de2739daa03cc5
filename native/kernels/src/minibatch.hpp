// The arrays of one minibatch from a table, where a sampler fills them. Owns nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/kernels/rows.hpp"

namespace penstock::kernels {

struct Minibatch {
    std::vector<Rows> obs, next;  // one for each encoding
    Rows action;
    const float* reward;
    const float* discount;
    const float* importance;  // or nullptr
    const float* weight;
    float* priority;          // written; or nullptr
    std::int64_t size;        // rows
};

// Rows that go through the networks together.
struct Part {
    std::int64_t row;
    std::int32_t rows;
    bool first;  // of its side
};

}  // namespace penstock::kernels
