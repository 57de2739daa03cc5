// One step of a recurrent cell for some lanes, as a level's functions take it: forward, and the gradient.
// Holds data only. "padded" is the size rounded up to the level's width; what pads a row is zero and stays zero.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock::kernels {

// Rows of a matrix, one for each lane.
template <typename T>
struct LaneRows {
    T* data;
    std::ptrdiff_t stride;

    T* row(std::int32_t lane) const { return data + lane * stride; }
};

struct CellSize {
    std::int32_t lanes;
    std::int32_t size;
    std::int32_t padded;
};

// See penstock.policies.LSTM. Overwrites the state before the step with the state behind it.
struct LstmStep {
    CellSize of;
    const float* own;         // [lanes, 4 padded]: h U
    LaneRows<const float> x;  // [lanes, 4 size]
    float* h;                 // [lanes, padded]
    float* c;                 // [lanes, padded]
    LaneRows<float> output;   // [lanes, size]: h behind the step
    float* gates;             // [lanes, 4 size]: i, f, g, o
    float* cells;             // [lanes, size]: c behind the step
};

// Overwrites the gradient of c behind the step with that before it. The gradient of h before the step is `d` times U
// transposed.
struct LstmGradient {
    CellSize of;
    const float* gates;              // as the step wrote them
    const float* cells;
    const float* before;             // [lanes, padded]: c before the step
    LaneRows<const float> d_output;  // [lanes, size]
    const float* d_h;                // [lanes, padded]: gradient of h behind the step, from the rows after it
    float* d_c;                      // [lanes, padded]
    LaneRows<float> d_x;             // [lanes, 4 size], written
    float* d;                        // [lanes, 4 padded], written: the same with padding
};

// See penstock.policies.GRU. Overwrites the state before the step with the state behind it.
struct GruStep {
    CellSize of;
    const float* own;         // [lanes, 3 padded]: h U + d
    LaneRows<const float> x;  // [lanes, 3 size]
    float* h;                 // [lanes, padded]
    LaneRows<float> output;   // [lanes, size]: h behind the step
    float* gates;             // [lanes, 4 size]: r, z, n, and the part n of `own`
};

// The gradient of h before the step has two parts. The part that does not go through U overwrites the gradient of h
// behind the step. The other part is `d` times U transposed.
struct GruGradient {
    CellSize of;
    const float* gates;              // as the step wrote them
    const float* before;             // [lanes, padded]: h before the step
    LaneRows<const float> d_output;  // [lanes, size]
    float* d_h;                      // [lanes, padded]
    LaneRows<float> d_x;             // [lanes, 3 size], written
    float* d;                        // [lanes, 3 padded], written: the gradient of `own`
};

}  // namespace penstock::kernels
