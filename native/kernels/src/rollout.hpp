// Writes one vector step into a rollout: its rows, each lane's running episode, and the episodes that end.
// Runs no environment and knows no Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::kernels {

// An array [lanes, ...] with any strides. A lane is copied by loops around runs of contiguous bytes.
class LaneArray {
public:
    // `shape` and `strides` (bytes) have `ndim` numbers each, at least one.
    LaneArray(const std::byte* data, std::size_t itemsize, std::size_t ndim, const std::ptrdiff_t* shape,
              const std::ptrdiff_t* strides);

    // Both functions copy the numbers in C order.
    void copy(std::byte* to) const;
    void copy_lane(std::int64_t lane, std::byte* to) const { copy_from(0, data_ + lane * lane_stride_, to); }

private:
    struct Loop {
        std::ptrdiff_t count;
        std::ptrdiff_t stride;
    };
    std::byte* copy_from(std::size_t depth, const std::byte* from, std::byte* to) const;

    const std::byte* data_;
    std::ptrdiff_t lanes_;
    std::ptrdiff_t lane_stride_;
    std::size_t run_;
    std::vector<Loop> loops_;  // of a lane, outermost first
};

// One number for each lane, with any stride.
template <typename T>
struct PerLane {
    const std::byte* data = nullptr;
    std::ptrdiff_t stride = 0;

    T operator[](std::int64_t lane) const { return *reinterpret_cast<const T*>(data + lane * stride); }
};

// The arrays that a source returned; see penstock.types.StepResult.
struct StepRows {
    PerLane<float> reward;
    PerLane<bool> terminated;
    PerLane<bool> truncated;
    PerLane<bool> reset;
    std::vector<LaneArray> obs;        // in the order of the rollout's
    std::vector<LaneArray> final_obs;  // same-step sources only
};

// The arrays of the rollout; see penstock.program.rollout. All are contiguous. T steps, B lanes, space for F ends.
struct RolloutRows {
    struct Field {
        std::byte* rows;          // [T + 1, B, ...]
        std::byte* finals;        // [F, ...]; same-step sources only
        std::size_t lane_nbytes;  // of one lane's row
    };
    std::int64_t steps;
    std::int64_t lanes;
    std::int64_t room;
    bool same_step;
    float* reward;     // [T + 1, B], and so are the next three
    bool* terminated;
    bool* truncated;
    bool* valid;
    std::vector<Field> obs;
    std::int64_t* final_count;
    std::int64_t* final_t;     // [F]
    std::int64_t* final_lane;  // [F]
    std::int64_t* episode_count;
    double* episode_return;        // [F]
    std::int64_t* episode_length;  // [F]
    // Of the episodes that go on, [B]; they outlive the rollout.
    double* running_return;
    std::int64_t* running_length;

    // Writes row t of reward, flags and validity, and row t + 1 of the observations; 0 <= t < T. Appends to `begun` the
    // lanes whose next episode begins with row t + 1. Throws std::out_of_range if a side area is full.
    void store(std::int64_t t, const StepRows& step, std::vector<std::int64_t>& begun) const;

private:
    void end_episode(std::int64_t lane) const;
    void keep_final(std::int64_t t, std::int64_t lane, const StepRows& step) const;
    std::int64_t next(std::int64_t& count) const;
};

}  // namespace penstock::kernels
