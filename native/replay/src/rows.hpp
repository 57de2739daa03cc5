// The rows of a table as they are sampled: a row, the rewards of up to n steps, the observation after them, and the frames
// before the row. Copies nothing.
//
// Slots may be overwritten while they are read. So all indices stay within the table, whatever the slots hold. A sample
// keeps the oldest sequence that was read; the sampler checks afterwards that it is still there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::replay {

// The arrays of the table. All are contiguous. A flat row is (slot * (T + 1) + t) * lanes + lane.
struct Rows {
    std::int64_t writers;
    std::int64_t slots;  // of each writer
    std::int64_t steps;  // T
    std::int64_t lanes;
    std::int64_t ends;   // entries in a slot's side area
    bool same_step;      // true: the side area holds the last observations of truncated episodes; false: the next row does
    const std::uint8_t* valid;  // [writers * slots, T + 1, lanes], and so are the next four
    const std::uint8_t* first;  // whether an episode begins with the row; nothing without a carry
    const std::uint8_t* terminated;
    const std::uint8_t* truncated;
    const float* reward;
    const std::uint8_t* continues;    // [writers * slots, lanes]: row 0 goes on where row T of the slot before stopped
    const std::int64_t* steps_before;  // [writers * slots, lanes]: steps of row 0's episode before row 0; 0: it begins there
    const std::int64_t* final_count;  // [writers * slots]
    const std::int64_t* final_t;      // [writers * slots, ends], in the order of (t, lane)
    const std::int64_t* final_lane;

    [[nodiscard]] std::int64_t row(std::int64_t slot, std::int64_t t, std::int64_t lane) const {
        return (slot * (steps + 1) + t) * lanes + lane;
    }
};

// The slots of one writer's ring that are sampled: those of the sequences low <= s < high.
struct Window {
    std::uint64_t low;
    std::uint64_t high;
    std::int64_t head;  // high % slots: the place of sequence `high` in the ring

    [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(high - low); }
};

struct Place {
    std::uint64_t sequence;
    std::int32_t writer;
    std::int32_t slot;  // index in the slots of all writers
    std::int32_t t;
    std::int32_t lane;
};

struct Sample {
    Place place;
    std::int64_t row;     // flat
    std::int64_t next;    // flat row of the observation after up to n steps; ~entry if it is in the side area
    std::uint64_t first;  // the oldest sequence that was read
    float reward;         // discounted sum
    float discount;       // of the value of the next observation
};

class Chains {
  public:
    // depth: number of frames before the row's own. limit: rewards are clipped to -limit .. limit.
    Chains(const Rows& rows, int n_step, double gamma, int depth, float limit);

    // Fills in the rest of a sample whose place is given. `last` becomes the place of the row whose step led to the next
    // observation. False if the row cannot be sampled: it was overwritten, or later rows are not written yet.
    bool follow(const Window& window, Sample& sample, Place& last) const {
        const Place& place = sample.place;
        const std::int64_t row = rows_.row(place.slot, place.t, place.lane);
        // Most samples are one step that ends in the next row.
        if (n_step_ == 1 && rows_.valid[row] && !rows_.truncated[row]) {
            sample.row = row;
            sample.next = row + rows_.lanes;
            sample.first = place.sequence;
            sample.reward = reward(row);
            sample.discount = rows_.terminated[row] ? 0.0F : gamma_;
            last = place;
            return true;
        }
        return follow_steps(window, sample, last);
    }

    // The flat rows of the frame at a place and of the `depth` frames before it, oldest first. Frames before an episode's
    // first are ~row of that first frame. Lowers `first`. False if a frame cannot be read.
    bool frames(const Window& window, Place at, std::uint64_t& first, std::int64_t* rows) const;

    // Goes on to the lane's next row: in the same slot, or in the next slot if that is written and continues the lane.
    bool advance(const Window& window, Place& place) const;

    [[nodiscard]] int depth() const { return depth_; }
    [[nodiscard]] float reward(std::int64_t row) const { return std::clamp(rows_.reward[row], -limit_, limit_); }
    // The side area's entry of a truncated row, or -1.
    [[nodiscard]] std::int64_t final_entry(std::int64_t slot, std::int64_t t, std::int64_t lane) const;

  private:
    // True if the next row is the first of an episode.
    [[nodiscard]] bool ends(std::int64_t row) const {
        return !rows_.valid[row] || (rows_.same_step && (rows_.terminated[row] || rows_.truncated[row]));
    }
    bool follow_steps(const Window& window, Sample& sample, Place& last) const;
    [[nodiscard]] std::int32_t neighbour(const Place& place, std::int32_t by) const;

    Rows rows_;
    int n_step_;
    int depth_;
    float gamma_;
    float limit_;
    std::vector<double> powers_;  // gamma^0 .. gamma^n_step
};

}  // namespace penstock::replay
