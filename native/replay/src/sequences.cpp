// Samples sequences of one lane, and takes all rows in their order.
#include <algorithm>
#include <cstring>
#include <string>

#include "sampler.hpp"

namespace penstock::replay {

void Sampler::sample_sequences(const Draw& key, std::span<const Item> items, std::size_t m, std::size_t length,
                               std::span<const std::uint64_t> before) {
    begin(m, false);
    Draw draw = key;
    for (draw.attempt = 0; draw.attempt < attempts && !pending_.empty(); ++draw.attempt) {
        this->draw(draw, before);
        starts_.swap(candidates_);
        candidates_.clear();
        stacks_.resize(2 * frames_ * starts_.size() * (length + 1));
        for (const Candidate& start : starts_)
            if (!unroll(start, length)) pending_.push_back(start.position);
        gather_all(items, 0, candidates_.size());
        check();
    }
    if (!pending_.empty()) throw Nothing("no lane has so many rows in a row that can be drawn");
    // The row behind a sequence has only an observation.
    for (const Item& item : items)
        if (item.column != nullptr && item.column->rows == reinterpret_cast<const std::byte*>(rows_.valid))
            std::memset(item.to + length * m, 0, m);
}

// Appends the rows of one sequence to the candidates, or nothing.
bool Sampler::unroll(const Candidate& start, std::size_t length) {
    const std::size_t begin = candidates_.size();
    Place place = start.sample.place;
    const Window& window = windows_[static_cast<std::size_t>(place.writer)];
    const auto whole = [&] {
        for (std::size_t j = 0; j <= length; ++j) {
            Candidate& candidate = candidates_.emplace_back();
            candidate.position = static_cast<std::uint32_t>(j * m_ + start.position);
            Sample& sample = candidate.sample;
            sample.place = place;
            const std::int64_t row = rows_.row(place.slot, place.t, place.lane);
            Place last = place;
            if (j < length && rows_.valid[row]) {
                if (!steps_.follow(window, sample, last)) return false;
            } else if (j == 0) {
                return false;
            } else {
                // The row carries no transition.
                const std::int64_t next = place.t == rows_.steps ? row : row + rows_.lanes;
                sample = {place, row, next, place.sequence, 0.0F, 0.0F};
            }
            if (frames_ != 0) {
                std::int64_t* stacks = stacks_.data() + 2 * frames_ * (candidates_.size() - 1);
                if (!chains_.frames(window, place, sample.first, stacks)) return false;
                std::copy_n(stacks, frames_, stacks + frames_);
            }
            if (j + 1 == length && place.t + 1 == rows_.steps) {
                ++place.t;  // row T holds the observation behind the slot's last step
            } else if (j < length && !chains_.advance(window, place)) {
                return false;
            }
        }
        return true;
    };
    if (whole()) return true;
    candidates_.resize(begin);
    return false;
}

std::uint64_t Sampler::take_in_order(std::uint64_t position, std::span<const Item> items, std::size_t m,
                                     std::span<const std::uint64_t> before) {
    m_ = m;
    for (std::uint32_t search = 0; search < searches; ++search) {
        look(before);
        std::uint64_t end = position;
        find_in_order(end, m);
        gather_all(items, 0, m);
        pending_.clear();
        check();
        if (pending_.empty()) return end;
    }
    throw Nothing("rows are overwritten faster than they can be taken: the table is too small for its writers");
}

void Sampler::find_in_order(std::uint64_t& position, std::size_t m) {
    const std::uint64_t lanes = lanes_.size();
    const auto steps = static_cast<std::uint64_t>(rows_.steps);
    std::uint64_t low = ~std::uint64_t{0};
    std::uint64_t high = low;
    for (const Window& window : windows_) {
        low = std::min(low, window.low);
        high = std::min(high, window.high);  // no writer's rows are taken before the other writers have theirs
    }
    candidates_.clear();
    stacks_.resize(2 * frames_ * (m + 1));
    for (position = std::max(position, low * steps * lanes); candidates_.size() < m && position < high * steps * lanes; ++position) {
        Candidate candidate{};
        Place& place = candidate.sample.place;
        place = lanes_[position % lanes];
        const Window& window = windows_[static_cast<std::size_t>(place.writer)];
        place.sequence = position / lanes / steps;
        if (place.sequence < window.low) continue;
        place.slot = static_cast<std::int32_t>(place.writer * rows_.slots) +
                     static_cast<std::int32_t>(place.sequence % static_cast<std::uint64_t>(rows_.slots));
        place.t = static_cast<std::int32_t>(position / lanes % steps);
        candidate.position = static_cast<std::uint32_t>(candidates_.size());
        if (follow(candidate, candidates_.size())) {
            candidates_.push_back(candidate);
        } else if (rows_.valid[rows_.row(place.slot, place.t, place.lane)] && place.sequence + 1 == window.high) {
            break;  // the rows behind it are not written yet
        }
    }
    if (candidates_.size() < m)
        throw Nothing("only " + std::to_string(candidates_.size()) + " of " + std::to_string(m) + " rows are there");
}

}  // namespace penstock::replay
