// The rows of a table as they are drawn: a row, the rewards up to n steps on, the observation there, the frames before.
// Follows what the slots say and copies nothing. What it reads may be overwritten meanwhile: it stays within the table,
// whatever it finds, and the oldest sequence that it looked at says what must still be there afterwards.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::replay {

// Where they are. All arrays are contiguous; a flat row is (slot * (T + 1) + t) * lanes + lane.
struct Rows {
    std::int64_t writers;
    std::int64_t slots;  // of each writer
    std::int64_t steps;  // T
    std::int64_t lanes;
    std::int64_t ends;   // room of a slot's side area
    bool same_step;      // last observations of truncated episodes stand in the side area, else in the row behind
    const std::uint8_t* valid;  // [writers * slots, T + 1, lanes], and so are the next three
    const std::uint8_t* terminated;
    const std::uint8_t* truncated;
    const float* reward;
    const std::uint8_t* continues;    // [writers * slots, lanes]: row 0 goes on where row T of the slot before stopped
    const std::int64_t* steps_before;  // [writers * slots, lanes]: of the episode that row 0 belongs to; 0: it begins there
    const std::int64_t* final_count;  // [writers * slots]
    const std::int64_t* final_t;      // [writers * slots, ends], in the order of (t, lane)
    const std::int64_t* final_lane;

    [[nodiscard]] std::int64_t row(std::int64_t slot, std::int64_t t, std::int64_t lane) const {
        return (slot * (steps + 1) + t) * lanes + lane;
    }
};

// What is drawn from one writer's ring: the slots of the sequences low <= s < high.
struct Window {
    std::uint64_t low;
    std::uint64_t high;
    std::int64_t head;  // high % slots: the ring's place of sequence `high`

    [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(high - low); }
};

struct Place {
    std::uint64_t sequence;
    std::int32_t writer;
    std::int32_t slot;  // of all writers' slots
    std::int32_t t;
    std::int32_t lane;
};

struct Sample {
    Place place;
    std::int64_t row;     // flat
    std::int64_t next;    // flat row of the observation up to n steps on; ~entry where it stands in the side area
    std::uint64_t first;  // the oldest sequence that was looked at
    float reward;         // discounted sum
    float discount;       // of what the next observation is worth
};

class Chains {
  public:
    // depth: frames before the row's own. limit: a reward counts as no more than this, nor as less than its negative.
    Chains(const Rows& rows, int n_step, double gamma, int depth, float limit);

    // Fills in the rest of a sample whose place is given, and the place of the row whose step led to the next observation.
    // False if it cannot be drawn (any more, or not yet).
    bool follow(const Window& window, Sample& sample, Place& last) const {
        const Place& place = sample.place;
        const std::int64_t row = rows_.row(place.slot, place.t, place.lane);
        // One step that ends in the row behind: most of all draws.
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

    // The flat rows of the frame at a place and of the `depth` before it, oldest first; ~row of an episode's first frame
    // for those before it. Lowers `first`. False if one of them cannot be read (any more).
    bool frames(const Window& window, Place at, std::uint64_t& first, std::int64_t* rows) const;

    // On to the lane's next row: in the same slot, or in the next one if that is written and continues it.
    bool advance(const Window& window, Place& place) const;

    [[nodiscard]] int depth() const { return depth_; }

  private:
    [[nodiscard]] float reward(std::int64_t row) const { return std::clamp(rows_.reward[row], -limit_, limit_); }
    // Whether the row behind this one is an episode's first.
    [[nodiscard]] bool ends(std::int64_t row) const {
        return !rows_.valid[row] || (rows_.same_step && (rows_.terminated[row] || rows_.truncated[row]));
    }
    bool follow_steps(const Window& window, Sample& sample, Place& last) const;
    // The side area's entry of a truncated row, or -1.
    [[nodiscard]] std::int64_t final_entry(std::int64_t slot, std::int64_t t, std::int64_t lane) const;
    [[nodiscard]] std::int32_t neighbour(const Place& place, std::int32_t by) const;

    Rows rows_;
    int n_step_;
    int depth_;
    float gamma_;
    float limit_;
    std::vector<double> powers_;  // of gamma, up to n_step
};

}  // namespace penstock::replay
