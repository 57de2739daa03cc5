// LSTM and GRU over a whole sequence of some lanes: forward, and the gradient of all inputs.
// Knows no network: the inputs' product with their weights is given. One thread; every number is one chain of sums in a
// fixed order, so results depend on the level alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "penstock/kernels/cells.hpp"
#include "penstock/kernels/level.hpp"

namespace penstock::kernels {

// An array [T, lanes, ...], whose last axis is contiguous.
template <typename T>
struct Steps {
    T* data;
    std::ptrdiff_t step;
    std::ptrdiff_t lane;

    LaneRows<T> at(std::int64_t t, std::int32_t from) const { return {data + t * step + from * lane, lane}; }
};

struct Sequence {
    std::int64_t steps;
    std::int32_t lanes;
    std::int32_t size;
    Steps<const bool> first;  // an episode begins with this row: the state before it is zero
};

// See penstock.kernels.recurrent for the arrays. Those without strides are contiguous.
struct LstmForward {
    Sequence over;
    Steps<const float> x;
    const float* recurrent;
    const float* h;
    const float* c;
    Steps<float> output;
    float* last_h;
    float* last_c;
    float* gates;
    float* cells;
};

struct LstmBackward {
    Sequence over;
    Steps<const float> d_output;
    const float* d_last_h;
    const float* d_last_c;
    const float* recurrent;
    const float* h;
    const float* c;
    Steps<const float> output;
    const float* gates;
    const float* cells;
    Steps<float> d_x;
    float* d_recurrent;
    float* d_h;
    float* d_c;
};

struct GruForward {
    Sequence over;
    Steps<const float> x;
    const float* recurrent;
    const float* bias;
    const float* h;
    Steps<float> output;
    float* last_h;
    float* gates;
};

struct GruBackward {
    Sequence over;
    Steps<const float> d_output;
    const float* d_last_h;
    const float* recurrent;
    const float* h;
    Steps<const float> output;
    const float* gates;
    Steps<float> d_x;
    float* d_recurrent;
    float* d_bias;
    float* d_h;
};

void forward(const LstmForward& run, const Level& level);
void backward(const LstmBackward& run, const Level& level);
void forward(const GruForward& run, const Level& level);
void backward(const GruBackward& run, const Level& level);

}  // namespace penstock::kernels
