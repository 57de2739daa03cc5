#include "sampler.hpp"

#include <algorithm>
#include <numeric>

#include "penstock/replay/below.hpp"

namespace penstock::replay {

namespace {

// The first attempts at a position, this many, sample from the position's own part of all priorities.
constexpr std::uint32_t stratified = 8;
constexpr std::size_t line = 64;
// Number of rows that are followed and copied together.
constexpr std::size_t chunk = 128;
// Number of cache lines of a row that are prefetched. The processor itself reads on behind these.
constexpr std::size_t lines_ahead = 4;

// Inlined by force: gcc removes calls of a function that only prefetches memory.
[[gnu::always_inline]] inline void ask_for_row(const std::byte* from, std::size_t nbytes) {
    const std::size_t end = std::min(nbytes, lines_ahead * line);
    __builtin_prefetch(from);
    for (std::size_t at = line; at < end; at += line) __builtin_prefetch(from + at);
    // Small rows seldom lie on two cache lines.
    if (nbytes > line / 4) __builtin_prefetch(from + end - 1);
}

}  // namespace

Sampler::Sampler(memory::Table<>& table, const Rows& rows, const Chains& chains, const SumTree<>* tree,
                 const Level& level)
    : table_(table),
      rows_(rows),
      chains_(chains),
      tree_(tree),
      level_(level),
      frames_(chains.depth() > 0 ? static_cast<std::size_t>(chains.depth()) + 1 : 0),
      windows_(table.writers()),
      oldest_(table.writers()) {
    for (std::int64_t writer = 0; writer < rows_.writers; ++writer)
        for (std::int64_t lane = 0; lane < rows_.lanes; ++lane)
            lanes_.push_back({0, static_cast<std::int32_t>(writer), 0, 0, static_cast<std::int32_t>(lane)});
}

void Sampler::sample(const SampleKey& key, std::span<const Item> items, std::size_t m, std::span<const std::uint64_t> before,
                     double beta) {
    begin(m, tree_ != nullptr, rows_.steps);
    SampleKey current = key;
    for (current.attempt = 0; current.attempt < attempts && !pending_.empty(); ++current.attempt) {
        sample_pending(current, before);
        take(items);
    }
    for (; current.attempt < attempts + searches && !pending_.empty(); ++current.attempt) {
        look(before);
        stacks_.resize(2 * frames_);
        sample_from_all(current, [this](Candidate& tried) { return follow(tried, 0); },
                      "nothing can be sampled: no row is valid and has its successors written");
        take(items);
    }
    if (!pending_.empty())
        throw Nothing("rows are overwritten faster than they can be sampled: the table is too small for its writers");
    if (tree_ != nullptr) weigh(items, beta);
}

// Never samples from the slot that a writer overwrites next, whether the writer has claimed it yet or not. So a batch
// depends only on the slots that were pushed, not on the progress of writers since.
void Sampler::look(std::span<const std::uint64_t> before) {
    largest_ = 0;
    const std::uint64_t slots = table_.slots();
    for (std::size_t writer = 0; writer < windows_.size(); ++writer) {
        const std::uint64_t written = table_.written(writer);
        const std::uint64_t high = before.empty() ? written : std::min(before[writer], written);
        const std::uint64_t low = std::max(high > slots - 1 ? high - (slots - 1) : 0, table_.first(writer));
        windows_[writer] = {std::min(low, high), high, static_cast<std::int64_t>(high % slots)};
        largest_ = std::max(largest_, windows_[writer].size());
    }
    if (largest_ == 0) throw Nothing("nothing can be sampled: no slot was pushed yet");
}

// Finds the place of a row by age and lane, which do not depend on the number of writers.
bool Sampler::placed(std::uint64_t age, std::uint32_t t, std::uint32_t lane, Place& place) const {
    place = lanes_[lane];
    const Window& window = windows_[static_cast<std::size_t>(place.writer)];
    const auto back = static_cast<std::int64_t>(age);
    if (back >= window.size()) return false;
    const std::int64_t at = window.head - 1 - back;
    place.slot = static_cast<std::int32_t>(place.writer * rows_.slots + (at < 0 ? at + rows_.slots : at));
    place.sequence = window.high - 1 - age;
    place.t = static_cast<std::int32_t>(t);
    return true;
}

bool Sampler::placed(std::size_t row, Place& place) const {
    const auto lanes = static_cast<std::size_t>(rows_.lanes);
    const auto height = static_cast<std::size_t>(rows_.steps) + 1;
    const auto slots = static_cast<std::size_t>(rows_.slots);
    const std::size_t line = row / lanes;
    const std::size_t slot = line / height;
    const std::size_t writer = slot / slots;
    const Window& window = windows_[writer];
    const std::int64_t behind = window.head - 1 - static_cast<std::int64_t>(slot - writer * slots);
    const std::int64_t back = behind < 0 ? behind + rows_.slots : behind;
    const std::size_t t = line - slot * height;
    if (back >= window.size() || t + 1 == height) return false;
    place = {window.high - 1 - static_cast<std::uint64_t>(back), static_cast<std::int32_t>(writer),
             static_cast<std::int32_t>(slot), static_cast<std::int32_t>(t), static_cast<std::int32_t>(row - line * lanes)};
    return true;
}

std::uint64_t Sampler::bits(std::size_t i) const { return words_[i] | std::uint64_t{words_[pending_.size() + i]} << 32; }

void Sampler::begin(std::size_t m, bool by_priority, std::int64_t height) {
    m_ = m;
    height_ = height;
    by_priority_ = by_priority;
    share_.resize(by_priority ? m : 0);
    pending_.resize(m);
    std::iota(pending_.begin(), pending_.end(), 0U);
}

// Makes a candidate of each pending position. Positions without a place stay pending. Reads the windows anew each time:
// this process may have slept while writers went round their rings.
void Sampler::sample_pending(const SampleKey& key, std::span<const std::uint64_t> before) {
    look(before);
    words_.resize(4 * pending_.size());
    level_.random_words(key, pending_.data(), pending_.size(), words_.data());
    candidates_.resize(pending_.size());
    if (by_priority_) {
        sample_by_priority(key);
    } else {
        sample_by_age();
    }
}

void Sampler::sample_by_age() {
    const std::size_t count = pending_.size();
    std::size_t kept = 0;
    std::size_t failed = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint64_t age = below(bits(i), static_cast<std::uint64_t>(largest_));
        const std::uint32_t t = below(words_[2 * count + i], static_cast<std::uint64_t>(height_));
        const std::uint32_t lane = below(words_[3 * count + i], lanes_.size());
        candidates_[kept].position = pending_[i];
        if (placed(age, t, lane, candidates_[kept].sample.place)) {
            ++kept;
        } else {
            pending_[failed++] = pending_[i];
        }
    }
    candidates_.resize(kept);
    pending_.resize(failed);
}

// Stratified sampling: each position of the batch has its own part of the sum of all priorities.
void Sampler::sample_by_priority(const SampleKey& key) {
    const std::size_t count = pending_.size();
    const std::uint64_t total = tree_->total();
    if (total == 0) throw Nothing("nothing can be sampled: every priority is 0");
    points_.resize(count);
    found_.resize(count);
    for (std::size_t i = 0; i < count; ++i)
        points_[i] = key.attempt < stratified ? stratum_point(pending_[i], m_, total, bits(i)) : below(bits(i), total);
    tree_->find(points_, found_);
    std::size_t kept = 0;
    std::size_t failed = 0;
    for (std::size_t i = 0; i < count; ++i) {
        Candidate& candidate = candidates_[kept];
        candidate.position = pending_[i];
        if (found_[i] != SumTree<>::nowhere && placed(found_[i], candidate.sample.place)) {
            const SumTree<>::Leaf leaf = tree_->leaf(found_[i]);
            if (leaf.priority > 0 && leaf.tag == SumTree<>::tag_of(candidate.sample.place.sequence)) {
                share_[pending_[i]] = static_cast<double>(leaf.priority) / static_cast<double>(total);
                ++kept;
                continue;
            }
        }
        pending_[failed++] = pending_[i];
    }
    candidates_.resize(kept);
    pending_.resize(failed);
}

bool Sampler::follow(Candidate& candidate, std::size_t kept) {
    Sample& sample = candidate.sample;
    const Window& window = windows_[static_cast<std::size_t>(sample.place.writer)];
    Place last;
    if (!chains_.follow(window, sample, last)) return false;
    if (frames_ == 0) return true;
    std::int64_t* stacks = stacks_.data() + 2 * frames_ * kept;
    return chains_.frames(window, sample.place, sample.first, stacks) &&
           chains_.frames(window, last, sample.first, stacks + frames_);
}

inline void Sampler::ask_for(std::size_t begin, std::size_t end, std::span<const Item> items) const {
    for (std::size_t i = begin; i < end; ++i) {
        const Place& place = candidates_[i].sample.place;
        const std::int64_t row = rows_.row(place.slot, place.t, place.lane);
        __builtin_prefetch(rows_.valid + row);
        __builtin_prefetch(rows_.terminated + row);
        __builtin_prefetch(rows_.truncated + row);
        __builtin_prefetch(rows_.reward + row);
        for (const Item& item : items) {
            if (item.column == nullptr) continue;
            const std::int64_t from = item.kind == Kind::next ? row + rows_.lanes : row;
            ask_for_row(item.column->rows + static_cast<std::size_t>(from) * item.column->nbytes, item.column->nbytes);
        }
    }
}

// Takes as many candidates at a time as the nearest cache holds. While these are followed and copied, the memory of the
// next ones is prefetched.
void Sampler::take(std::span<const Item> items) {
    stacks_.resize(2 * frames_ * candidates_.size());
    const std::size_t count = candidates_.size();
    std::size_t kept = 0;
    ask_for(0, std::min(chunk, count), items);
    for (std::size_t first = 0; first < count; first += chunk) {
        const std::size_t end = std::min(first + chunk, count);
        ask_for(end, std::min(end + chunk, count), items);
        const std::size_t begin = kept;
        for (std::size_t i = first; i < end; ++i) {
            if (!follow(candidates_[i], kept)) {
                pending_.push_back(candidates_[i].position);
                continue;
            }
            if (kept != i) candidates_[kept] = candidates_[i];
            ++kept;
        }
        gather_all(items, begin, kept);
    }
    candidates_.resize(kept);
    check(candidates_);
}

// A copied row counts only if no slot that it came from was being overwritten by now.
void Sampler::check(std::span<const Candidate> copied) {
    constexpr std::uint64_t unasked = ~std::uint64_t{0};
    std::fill(oldest_.begin(), oldest_.end(), unasked);
    for (const Candidate& candidate : copied) {
        const auto writer = static_cast<std::size_t>(candidate.sample.place.writer);
        if (oldest_[writer] == unasked) oldest_[writer] = table_.oldest(writer);
        if (candidate.sample.first < oldest_[writer]) pending_.push_back(candidate.position);
    }
}

// Running sums of the weights of these rows: their priorities, or 1 for each row.
std::vector<std::uint64_t> Sampler::sums_of(std::span<const Place> places) const {
    std::vector<std::uint64_t> sums;
    std::uint64_t sum = 0;
    for (const Place& place : places) {
        if (by_priority_) {
            const auto row = static_cast<std::size_t>(rows_.row(place.slot, place.t, place.lane));
            const SumTree<>::Leaf leaf = tree_->leaf(row);
            sum += leaf.tag == SumTree<>::tag_of(place.sequence) ? leaf.priority : 0;
        } else {
            ++sum;
        }
        sums.push_back(sum);
    }
    if (sum == 0) throw Nothing("nothing can be sampled: the priority of every row with its successors written is 0");
    return sums;
}

}  // namespace penstock::replay
