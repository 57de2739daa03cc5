// Writes one vector step into a rollout's rows and adds it to each lane's episode. Runs no environment and knows no Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::kernels {

// An array [lanes, ...] with any strides, as loops around runs of contiguous bytes.
class Strided {
public:
    // `shape` and `strides` (bytes) have `ndim` numbers each.
    Strided(const std::byte* data, std::size_t itemsize, std::size_t ndim, const std::ptrdiff_t* shape,
            const std::ptrdiff_t* strides);
    // Copies the numbers, in C order.
    void copy(std::byte* to) const;

private:
    struct Loop {
        std::ptrdiff_t count;
        std::ptrdiff_t stride;
    };
    std::byte* copy(std::size_t depth, const std::byte* from, std::byte* to) const;

    const std::byte* data_;
    std::size_t run_;
    std::vector<Loop> loops_;  // outermost first
};

// Where rows are written; see penstock.program.rollout. All arrays are contiguous.
struct RolloutRows {
    struct Field {
        std::byte* data;         // [steps + 1, lanes, ...]
        std::size_t row_nbytes;  // of all lanes
    };
    std::int64_t steps;  // T
    std::int64_t lanes;  // B
    float* reward;       // [T + 1, B]
    bool* terminated;    // [T + 1, B]
    bool* truncated;     // [T + 1, B]
    bool* valid;         // [T + 1, B]
    std::vector<Field> obs;
    double* episode_return;        // [B], so far
    std::int64_t* episode_length;  // [B], so far
};

// One number a lane, with any stride.
template <typename T>
struct PerLane {
    const std::byte* data = nullptr;
    std::ptrdiff_t stride = 0;

    T operator[](std::int64_t lane) const { return *reinterpret_cast<const T*>(data + lane * stride); }
};

// What a source gave; see penstock.types.StepResult.
struct StepRows {
    PerLane<float> reward;
    PerLane<bool> terminated;
    PerLane<bool> truncated;
    PerLane<bool> reset;
    std::vector<Strided> obs;  // [B, ...] each, in the order of the rollout's
};

// Row t of reward, flags and validity, row t + 1 of the observations. 0 <= t < steps.
// Returns how many lanes ended or were reset.
std::int64_t store(const RolloutRows& rollout, std::int64_t t, const StepRows& step);

}  // namespace penstock::kernels
