#include "rows.hpp"

#include <algorithm>

namespace penstock::replay {

Chains::Chains(const Rows& rows, int n_step, double gamma, int depth, float limit)
    : rows_(rows), n_step_(n_step), depth_(depth), gamma_(static_cast<float>(gamma)), limit_(limit) {
    powers_.push_back(1.0);
    for (int k = 0; k < n_step; ++k) powers_.push_back(powers_.back() * gamma);
}

bool Chains::follow_steps(const Window& window, Sample& sample, Place& last) const {
    const Rows& rows = rows_;
    Place at = sample.place;
    std::int64_t row = rows.row(at.slot, at.t, at.lane);
    sample.row = row;
    sample.first = at.sequence;
    if (!rows.valid[row]) return false;
    double reward = 0.0;
    for (std::size_t n = 0;;) {
        last = at;
        reward += powers_[n++] * static_cast<double>(this->reward(row));
        const bool terminated = rows.terminated[row] != 0;
        sample.discount = terminated ? 0.0F : static_cast<float>(powers_[n]);
        sample.next = row + rows.lanes;
        if (terminated) break;
        if (rows.truncated[row]) {
            if (!rows.same_step) break;
            const std::int64_t entry = final_entry(at.slot, at.t, at.lane);
            if (entry < 0) return false;
            sample.next = ~entry;
            break;
        }
        if (n == static_cast<std::size_t>(n_step_)) break;
        // Only the next slot says whether the lane goes on there.
        if (at.t + 1 == rows.steps && at.sequence + 1 >= window.high) return false;
        if (!advance(window, at)) break;
        row = rows.row(at.slot, at.t, at.lane);
        // A row that is not valid carries no transition. Its observation is the next observation of the row before.
        if (!rows.valid[row]) break;
    }
    sample.reward = static_cast<float>(reward);
    return true;
}

bool Chains::advance(const Window& window, Place& place) const {
    if (place.t + 1 < rows_.steps) {
        ++place.t;
        return true;
    }
    const std::int32_t slot = neighbour(place, 1);
    if (place.sequence + 1 >= window.high || !rows_.continues[slot * rows_.lanes + place.lane]) return false;
    place = {place.sequence + 1, place.writer, slot, 0, place.lane};
    return true;
}

bool Chains::frames(const Window& window, Place at, std::uint64_t& first, std::int64_t* frames) const {
    const Rows& rows = rows_;
    frames[depth_] = rows.row(at.slot, at.t, at.lane);
    int k = depth_;
    for (; k > 0; --k) {
        const std::int64_t lane = at.slot * rows.lanes + at.lane;
        const bool inside = at.t > 0;
        if (inside) {
            --at.t;
        } else {
            if (rows.steps_before[lane] == 0) break;
            // The episode began in an earlier slot that cannot be read.
            if (!rows.continues[lane] || at.sequence <= window.low) return false;
            at.slot = neighbour(at, -1);
            --at.sequence;
            at.t = static_cast<std::int32_t>(rows.steps) - 1;
            first = std::min(first, at.sequence);
        }
        const std::int64_t row = rows.row(at.slot, at.t, at.lane);
        if (ends(row)) {
            // An end in the slot before contradicts steps_before of row 0: that slot was not restored.
            if (!inside) return false;
            break;
        }
        frames[k - 1] = row;
    }
    std::fill_n(frames, k, ~frames[k]);
    return true;
}

std::int64_t Chains::final_entry(std::int64_t slot, std::int64_t t, std::int64_t lane) const {
    const std::int64_t count = std::clamp<std::int64_t>(rows_.final_count[slot], 0, rows_.ends);
    const std::int64_t first = slot * rows_.ends;
    std::int64_t low = first;
    std::int64_t high = first + count;
    while (low < high) {
        const std::int64_t middle = low + (high - low) / 2;
        const std::int64_t found_t = rows_.final_t[middle];
        if (found_t < t || (found_t == t && rows_.final_lane[middle] < lane)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    const bool found = low < first + count && rows_.final_t[low] == t && rows_.final_lane[low] == lane;
    return found ? low : -1;
}

std::int32_t Chains::neighbour(const Place& place, std::int32_t by) const {
    const auto slots = static_cast<std::int32_t>(rows_.slots);
    const std::int32_t first = place.writer * slots;
    const std::int32_t slot = place.slot + by;
    return slot == first + slots ? first : slot < first ? first + slots - 1 : slot;
}

}  // namespace penstock::replay
