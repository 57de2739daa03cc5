#include "rollout.hpp"

#include <cstring>

namespace penstock::kernels {

Strided::Strided(const std::byte* data, std::size_t itemsize, std::size_t ndim, const std::ptrdiff_t* shape,
                 const std::ptrdiff_t* strides)
    : data_(data), run_(itemsize) {
    std::size_t outer = ndim;
    while (outer > 0 && (shape[outer - 1] == 1 || strides[outer - 1] == static_cast<std::ptrdiff_t>(run_)))
        run_ *= static_cast<std::size_t>(shape[--outer]);
    for (std::size_t axis = 0; axis < outer; ++axis) loops_.push_back({shape[axis], strides[axis]});
}

void Strided::copy(std::byte* to) const { copy(0, data_, to); }

std::byte* Strided::copy(std::size_t depth, const std::byte* from, std::byte* to) const {
    if (depth == loops_.size()) {
        std::memcpy(to, from, run_);
        return to + run_;
    }
    for (std::ptrdiff_t i = 0; i < loops_[depth].count; ++i) to = copy(depth + 1, from + i * loops_[depth].stride, to);
    return to;
}

std::int64_t store(const RolloutRows& rollout, std::int64_t t, const StepRows& step) {
    const std::int64_t row = t * rollout.lanes;
    std::int64_t turned = 0;
    for (std::int64_t lane = 0; lane < rollout.lanes; ++lane) {
        const float reward = step.reward[lane];
        const bool terminated = step.terminated[lane], truncated = step.truncated[lane], reset = step.reset[lane];
        rollout.reward[row + lane] = reward;
        rollout.terminated[row + lane] = terminated;
        rollout.truncated[row + lane] = truncated;
        rollout.valid[row + lane] = !reset;
        rollout.episode_return[lane] += static_cast<double>(reward);
        rollout.episode_length[lane] += 1;
        turned += terminated || truncated || reset;
    }
    for (std::size_t i = 0; i < rollout.obs.size(); ++i) {
        const RolloutRows::Field& field = rollout.obs[i];
        step.obs[i].copy(field.data + static_cast<std::size_t>(t + 1) * field.row_nbytes);
    }
    return turned;
}

}  // namespace penstock::kernels
