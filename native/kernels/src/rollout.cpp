#include "rollout.hpp"

#include <cstring>
#include <stdexcept>
#include <string>

namespace penstock::kernels {

LaneArray::LaneArray(const std::byte* data, std::size_t itemsize, std::size_t ndim, const std::ptrdiff_t* shape,
                     const std::ptrdiff_t* strides)
    : data_(data), lanes_(shape[0]), lane_stride_(strides[0]), run_(itemsize) {
    std::size_t outer = ndim;
    while (outer > 1 && (shape[outer - 1] == 1 || strides[outer - 1] == static_cast<std::ptrdiff_t>(run_)))
        run_ *= static_cast<std::size_t>(shape[--outer]);
    for (std::size_t axis = 1; axis < outer; ++axis) loops_.push_back({shape[axis], strides[axis]});
}

void LaneArray::copy(std::byte* to) const {
    if (loops_.empty() && lane_stride_ == static_cast<std::ptrdiff_t>(run_)) {
        std::memcpy(to, data_, static_cast<std::size_t>(lanes_) * run_);
        return;
    }
    for (std::ptrdiff_t lane = 0; lane < lanes_; ++lane) to = copy_from(0, data_ + lane * lane_stride_, to);
}

std::byte* LaneArray::copy_from(std::size_t depth, const std::byte* from, std::byte* to) const {
    if (depth == loops_.size()) {
        std::memcpy(to, from, run_);
        return to + run_;
    }
    const auto [count, stride] = loops_[depth];
    if (depth + 1 == loops_.size() && run_ == sizeof(float)) {
        // With a constant size the copy is one move. Vector environments that store columns give transposed float32.
        for (std::ptrdiff_t i = 0; i < count; ++i, to += sizeof(float)) std::memcpy(to, from + i * stride, sizeof(float));
        return to;
    }
    for (std::ptrdiff_t i = 0; i < count; ++i) to = copy_from(depth + 1, from + i * stride, to);
    return to;
}

void RolloutRows::store(std::int64_t t, const StepRows& step, std::vector<std::int64_t>& begun) const {
    for (std::size_t i = 0; i < obs.size(); ++i)
        step.obs[i].copy(obs[i].rows + static_cast<std::size_t>((t + 1) * lanes) * obs[i].lane_nbytes);
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
        const std::int64_t row = t * lanes + lane;
        const bool was_reset = step.reset[lane];
        reward[row] = step.reward[lane];
        terminated[row] = step.terminated[lane];
        truncated[row] = step.truncated[lane];
        valid[row] = !was_reset;
        running_return[lane] += static_cast<double>(reward[row]);
        running_length[lane] += 1;
        const bool ended = terminated[row] || truncated[row];
        // A reset row ends no episode, whatever its flags say: readers of the list of ends take only valid rows.
        if (ended && !was_reset) end_episode(lane);
        if (ended && same_step && !terminated[row]) keep_final(t, lane, step);
        if (same_step ? ended : was_reset) {
            running_return[lane] = 0.0;
            running_length[lane] = 0;
            begun.push_back(lane);
        }
    }
}

void RolloutRows::end_episode(std::int64_t lane) const {
    const std::int64_t at = next(*episode_count);
    episode_return[at] = running_return[lane];
    episode_length[at] = running_length[lane];
}

void RolloutRows::keep_final(std::int64_t t, std::int64_t lane, const StepRows& step) const {
    const std::int64_t at = next(*final_count);
    final_t[at] = t;
    final_lane[at] = lane;
    for (std::size_t i = 0; i < obs.size(); ++i)
        step.final_obs[i].copy_lane(lane, obs[i].finals + static_cast<std::size_t>(at) * obs[i].lane_nbytes);
}

std::int64_t RolloutRows::next(std::int64_t& count) const {
    if (count < 0 || count >= room)
        throw std::out_of_range("end " + std::to_string(count) + " of " + std::to_string(room) + ": counts were not reset");
    return count++;
}

}  // namespace penstock::kernels
