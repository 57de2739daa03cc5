// A rollout of two steps, two lanes and transposed observations, written into arrays of just the size.

#include "rollout.hpp"

#include <stdexcept>
#include <vector>

#include "numbers.hpp"

namespace {

using namespace penstock::kernels;
using penstock::test::check;

constexpr std::size_t kSteps = 2, kLanes = 2, kSize = 3, kRoom = kSteps * kLanes;

template <typename T>
PerLane<T> per_lane(const T* values) {
    return {reinterpret_cast<const std::byte*>(values), sizeof(T)};
}

struct Slot {
    std::vector<float> reward = std::vector<float>((kSteps + 1) * kLanes), obs = std::vector<float>(reward.size() * kSize),
                       finals = std::vector<float>(kRoom * kSize);
    bool terminated[(kSteps + 1) * kLanes]{}, truncated[(kSteps + 1) * kLanes]{}, valid[(kSteps + 1) * kLanes]{};
    std::int64_t final_count = 0, episode_count = 0;
    std::vector<std::int64_t> final_t = std::vector<std::int64_t>(kRoom), final_lane = final_t, episode_length = final_t;
    std::vector<double> episode_return = std::vector<double>(kRoom), running_return = std::vector<double>(kLanes);
    std::vector<std::int64_t> running_length = std::vector<std::int64_t>(kLanes);

    RolloutRows rows() {
        const RolloutRows::Field field{reinterpret_cast<std::byte*>(obs.data()), reinterpret_cast<std::byte*>(finals.data()),
                                       kSize * sizeof(float)};
        return {.steps = kSteps, .lanes = kLanes, .room = kRoom, .same_step = true, .reward = reward.data(),
                .terminated = terminated, .truncated = truncated, .valid = valid, .obs = {field},
                .final_count = &final_count, .final_t = final_t.data(), .final_lane = final_lane.data(),
                .episode_count = &episode_count, .episode_return = episode_return.data(),
                .episode_length = episode_length.data(), .running_return = running_return.data(),
                .running_length = running_length.data()};
    }
};

}  // namespace

void a_rollout_keeps_what_ends_in_it() {
    // Observations stand [size, lanes]: number j of lane i at 2 j + i.
    const float reward[] = {1.0F, 2.0F}, seen[] = {0, 10, 1, 11, 2, 12}, last[] = {100, 110, 101, 111, 102, 112};
    const bool no[] = {false, false}, second[] = {false, true};
    const std::ptrdiff_t shape[] = {kLanes, kSize}, strides[] = {sizeof(float), kLanes * sizeof(float)};
    const auto transposed = [&](const float* values) {
        return LaneArray(reinterpret_cast<const std::byte*>(values), sizeof(float), 2, shape, strides);
    };
    StepRows step{.reward = per_lane(reward), .terminated = per_lane(no), .truncated = per_lane(no), .reset = per_lane(no),
                  .obs = {transposed(seen)}, .final_obs = {transposed(last)}};
    Slot slot;
    const RolloutRows rows = slot.rows();
    std::vector<std::int64_t> begun;
    rows.store(0, step, begun);
    check(begun.empty() && slot.episode_count == 0, "nothing has ended");
    check(slot.obs == std::vector<float>{0, 0, 0, 0, 0, 0, 0, 1, 2, 10, 11, 12, 0, 0, 0, 0, 0, 0}, "observations of row 1");
    step.truncated = per_lane(second);
    rows.store(1, step, begun);
    check(begun == std::vector<std::int64_t>{1}, "lane 1 begins anew");
    check(slot.episode_count == 1 && slot.episode_return[0] == 4.0 && slot.episode_length[0] == 2, "its episode");
    check(slot.final_count == 1 && slot.final_t[0] == 1 && slot.final_lane[0] == 1, "where it was cut");
    check(slot.finals[0] == 110 && slot.finals[1] == 111 && slot.finals[2] == 112, "its last observation");
    check(slot.running_return == std::vector<double>{2.0, 0.0}, "the other goes on");
    // A source that uses a step of its own for a reset. The flags of this reset row end no second episode.
    Slot apart;
    RolloutRows of_its_own = apart.rows();
    of_its_own.same_step = false;
    begun.clear();
    of_its_own.store(0, step, begun);
    step.reset = per_lane(second);
    of_its_own.store(1, step, begun);
    check(apart.episode_count == 1 && apart.episode_length[0] == 1, "the reset row ends nothing");
    check(!apart.valid[kLanes + 1] && begun == std::vector<std::int64_t>{1}, "but lane 1 begins anew after it");
    step.reset = per_lane(no);
    slot.episode_count = kRoom;
    bool refused = false;
    try {
        rows.store(1, step, begun);
    } catch (const std::out_of_range&) {
        refused = true;
    }
    check(refused, "a full side area is refused");
}
