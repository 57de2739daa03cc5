// Copies the rows of candidates into a batch, one field after the other.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "sampler.hpp"

namespace penstock::replay {

namespace {

// With a constant size a copy is a few moves.
template <class Copies>
void with_size(std::size_t nbytes, const Copies& copies) {
    switch (nbytes) {
        case 1: return copies(std::integral_constant<std::size_t, 1>());
        case 4: return copies(std::integral_constant<std::size_t, 4>());
        case 8: return copies(std::integral_constant<std::size_t, 8>());
        case 12: return copies(std::integral_constant<std::size_t, 12>());
        case 16: return copies(std::integral_constant<std::size_t, 16>());
        case 24: return copies(std::integral_constant<std::size_t, 24>());
        case 32: return copies(std::integral_constant<std::size_t, 32>());
        case 64: return copies(std::integral_constant<std::size_t, 64>());
        default: return copies(nbytes);
    }
}

const std::byte* next_of(const Column& column, const Sample& sample, std::size_t nbytes) {
    return sample.next < 0 ? column.finals + static_cast<std::size_t>(~sample.next) * nbytes
                           : column.rows + static_cast<std::size_t>(sample.next) * nbytes;
}

template <class Value>
void put(std::byte* to, std::size_t at, Value value) {
    std::memcpy(to + at * sizeof value, &value, sizeof value);
}

}  // namespace

void Sampler::gather_all(std::span<const Item> items, std::size_t begin, std::size_t end) const {
    for (const Item& item : items) {
        if (item.column != nullptr && item.column->frames > 1) {
            gather_stacks(item, begin, end);
        } else {
            gather(item, std::span(candidates_).subspan(begin, end - begin));
        }
    }
}

void Sampler::gather(const Item& item, std::span<const Candidate> candidates) const {
    const auto put_all = [&](auto value_of) {
        for (const Candidate& candidate : candidates) put(item.to, candidate.position, value_of(candidate.sample));
    };
    switch (item.kind) {
        case Kind::reward: return put_all([](const Sample& sample) { return sample.reward; });
        case Kind::discount: return put_all([](const Sample& sample) { return sample.discount; });
        case Kind::index: return put_all([](const Sample& sample) { return sample.row; });
        case Kind::stamp: return put_all([](const Sample& sample) { return sample.place.sequence; });
        case Kind::importance:
        case Kind::weight: return put_all([](const Sample&) { return 1.0F; });
        case Kind::row:
            return with_size(item.column->nbytes, [&](auto nbytes) {
                const std::byte* rows = item.column->rows;
                for (const Candidate& candidate : candidates)
                    std::memcpy(item.to + candidate.position * nbytes,
                                rows + static_cast<std::size_t>(candidate.sample.row) * nbytes, nbytes);
            });
        case Kind::lane:
            return with_size(item.column->nbytes, [&](auto nbytes) {
                for (const Candidate& candidate : candidates) {
                    const Place& place = candidate.sample.place;
                    const std::int64_t lane = place.slot * rows_.lanes + place.lane;
                    std::memcpy(item.to + candidate.position * nbytes,
                                item.column->rows + static_cast<std::size_t>(lane) * nbytes, nbytes);
                }
            });
        case Kind::next:
            return with_size(item.column->nbytes, [&](auto nbytes) {
                for (const Candidate& candidate : candidates)
                    std::memcpy(item.to + candidate.position * nbytes, next_of(*item.column, candidate.sample, nbytes),
                                nbytes);
            });
    }
}

void Sampler::gather_stacks(const Item& item, std::size_t begin, std::size_t end) const {
    const Column& column = *item.column;
    const std::size_t nbytes = column.nbytes;
    // The rows are those of the deepest stack; this column's stack is the newest of them. The stack of a next observation
    // is that of the row before it without the oldest frame, and the next observation behind it.
    const std::size_t skipped = frames_ - column.frames;
    for (std::size_t i = begin; i < end; ++i) {
        const Sample& sample = candidates_[i].sample;
        const std::int64_t* rows = stacks_.data() + 2 * frames_ * i + skipped;
        std::byte* to = item.to + candidates_[i].position * column.frames * nbytes;
        const auto copy_rows = [&](const std::int64_t* from, std::size_t count) {
            for (std::size_t k = 0; k < count; ++k, to += nbytes) {
                const std::int64_t row = from[k] < 0 ? ~from[k] : from[k];
                if (from[k] < 0 && column.zeros) {
                    std::memset(to, 0, nbytes);
                } else {
                    std::memcpy(to, column.rows + static_cast<std::size_t>(row) * nbytes, nbytes);
                }
            }
        };
        if (item.kind == Kind::row) {
            copy_rows(rows, column.frames);
        } else {
            copy_rows(rows + frames_ + 1, column.frames - 1);
            std::memcpy(to, next_of(column, sample, nbytes), nbytes);
        }
    }
}

// Schaul et al. 2016: (N P)^-beta, divided by the largest one of the batch. N cancels.
void Sampler::weigh(std::span<const Item> items, double beta) const {
    const double least = *std::min_element(share_.begin(), share_.end());
    for (const Item& item : items)
        if (item.kind == Kind::importance)
            for (std::size_t i = 0; i < m_; ++i) put(item.to, i, std::pow(static_cast<float>(least / share_[i]), static_cast<float>(beta)));
}

}  // namespace penstock::replay
