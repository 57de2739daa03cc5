// Samples sequences of one lane.
#include <algorithm>

#include "sampler.hpp"

namespace penstock::replay {

void Sampler::sample_sequences(const SampleKey& key, std::span<const Item> rows, std::span<const Item> once, std::size_t m,
                               std::size_t length, std::span<const std::uint64_t> before, double beta) {
    begin(m, tree_ != nullptr, 1);
    const auto able = [&](Candidate& tried) {
        candidates_.clear();
        stacks_.resize(2 * frames_ * (length + 1));
        return unroll(tried, length);
    };
    SampleKey current = key;
    for (current.attempt = 0; current.attempt < attempts && !pending_.empty(); ++current.attempt) {
        sample_pending(current, before);
        take_sequences(rows, once, length);
    }
    for (; current.attempt < attempts + searches && !pending_.empty(); ++current.attempt) {
        look(before);
        sample_from_all(current, able, "nothing can be sampled: no lane has so many rows in a row");
        take_sequences(rows, once, length);
    }
    if (!pending_.empty())
        throw Nothing("sequences are overwritten faster than they can be sampled: the table is too small for its writers");
    if (tree_ != nullptr) weigh(once, beta);
}

// Copies the sequences that begin with the candidates.
void Sampler::take_sequences(std::span<const Item> rows, std::span<const Item> once, std::size_t length) {
    starts_.swap(candidates_);
    candidates_.clear();
    blank_.clear();
    last_.clear();
    stacks_.resize(2 * frames_ * starts_.size() * (length + 1));
    std::size_t kept = 0;
    for (Candidate& start : starts_) {
        if (unroll(start, length)) {
            starts_[kept++] = start;
        } else {
            pending_.push_back(start.position);
        }
    }
    starts_.resize(kept);
    gather_all(rows, 0, candidates_.size());
    blank(rows);
    for (const Item& item : once) gather(item, starts_);
    check(starts_);
}

// Appends the rows of one sequence to the candidates, or nothing. Stores in `start` what it read.
bool Sampler::unroll(Candidate& start, std::size_t length) {
    const std::size_t begin = candidates_.size(), blanks = blank_.size(), lasts = last_.size();
    Place place = start.sample.place;
    const Window& window = windows_[static_cast<std::size_t>(place.writer)];
    start.sample.row = rows_.row(place.slot, place.t, place.lane);
    start.sample.first = place.sequence;
    const auto whole = [&] {
        auto position = static_cast<std::uint32_t>(start.position * (length + 1));
        for (std::size_t j = 0; j <= length; ++j) {
            const std::int64_t row = rows_.row(place.slot, place.t, place.lane);
            const bool carries = j < length && place.t < rows_.steps && rows_.valid[row];
            if (!carries) blank_.push_back(position);
            if (!add_row(start, position++, place, row)) return false;
            if (j == length) break;
            if (rows_.same_step && carries && rows_.truncated[row] && !rows_.terminated[row]) {
                const std::int64_t entry = chains_.final_entry(place.slot, place.t, place.lane);
                blank_.push_back(position);
                last_.push_back(position);
                if (entry < 0 || !add_row(start, position++, place, ~entry)) return false;
                if (++j == length) break;
            }
            if (!go_on(window, place, j + 1 == length)) return false;
        }
        return true;
    };
    if (whole()) return true;
    candidates_.resize(begin);
    blank_.resize(blanks);
    last_.resize(lasts);
    return false;
}

// Appends a row of a sequence whose observation is at `from`: its own, or ~entry in the side area. False if a frame of
// its stack cannot be read.
bool Sampler::add_row(Candidate& start, std::uint32_t position, const Place& place, std::int64_t from) {
    Candidate& candidate = candidates_.emplace_back();
    const std::int64_t row = rows_.row(place.slot, place.t, place.lane);
    candidate.position = position;
    candidate.sample = {place, row, from, place.sequence, chains_.reward(row), 0.0F};
    if (frames_ == 0) return true;
    // The stack of a `next` is the second one here without its oldest frame, and the observation behind it.
    std::int64_t* stacks = stacks_.data() + 2 * frames_ * (candidates_.size() - 1);
    std::int64_t* const behind = stacks + frames_;
    const Window& window = windows_[static_cast<std::size_t>(place.writer)];
    if (!chains_.frames(window, place, start.sample.first, stacks)) return false;
    if (from < 0) {
        std::copy_n(stacks, frames_, behind);
    } else {
        std::copy_n(stacks, frames_ - 1, behind + 1);
    }
    return true;
}

// Goes on to the row behind a place. Where the lane was interrupted, that is row T of its slot, again and again. False if
// the row is not written yet.
bool Sampler::go_on(const Window& window, Place& place, bool last) const {
    if (place.t == rows_.steps || chains_.advance(window, place)) return true;
    // Row T has the observation behind the slot's last step, also before the next slot is written.
    if (place.sequence + 1 >= window.high && !last) return false;
    ++place.t;
    return true;
}

// Marks the rows that carry no transition. No episode begins with the last observation of one.
void Sampler::blank(std::span<const Item> rows) const {
    for (const Item& item : rows) {
        if (item.column == nullptr) continue;
        const auto* from = reinterpret_cast<const std::uint8_t*>(item.column->rows);
        if (from == rows_.valid)
            for (const std::uint32_t position : blank_) item.to[position] = std::byte{0};
        if (from == rows_.first)
            for (const std::uint32_t position : last_) item.to[position] = std::byte{0};
    }
}

}  // namespace penstock::replay
