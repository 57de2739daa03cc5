// Samples rows of a table and gathers them while writers write. A row that was overwritten during its copy is sampled again.
// Knows no Python. One call at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "penstock/memory/table.hpp"
#include "penstock/replay/level.hpp"
#include "penstock/replay/sum_tree.hpp"
#include "penstock/replay/below.hpp"
#include "rows.hpp"

namespace penstock::replay {

// Thrown if no row can be sampled.
struct Nothing : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// A field of the table's rows.
struct Column {
    const std::byte* rows;    // [writers * slots, T + 1, lanes, nbytes]
    const std::byte* finals;  // [writers * slots, ends, nbytes], or nothing
    std::size_t nbytes;
    std::size_t frames;       // number of frames in a sample; 1: no stack
    bool zeros;               // frames before an episode's first are zeros; false: they repeat the first
};

enum class Kind { row, next, reward, discount, index, stamp, importance, weight, lane };

// One array of a batch: [m, ...] of `nbytes` each.
struct Item {
    Kind kind;
    const Column* column;  // for a row, a next observation, or what a slot holds once for each lane
    std::byte* to;
};

class Sampler {
  public:
    // tree: leaf = flat row. Without a tree all rows are equally likely.
    Sampler(memory::Table<>& table, const Rows& rows, const Chains& chains, const SumTree<>* tree, const Level& level);

    // Fills a batch of m samples. Throws Nothing if no row can be sampled.
    // before: one sequence for each writer, or nothing. Only lower sequences are sampled.
    // beta: the exponent of importance weights, with a tree.
    void sample(const SampleKey& key, std::span<const Item> items, std::size_t m, std::span<const std::uint64_t> before,
                double beta);

    // Fills m sequences of `length` rows of one lane, and the observation behind each: `rows` are [m, length + 1, ...],
    // `once` are [m, ...]. A sequence begins with row 0 of a slot. With a tree, that row's priority is the sequence's.
    // A row's reward is that of one step. The last observation of a truncated episode has a row of its own here, so
    // observations are gathered as `next`. Throws Nothing if no sequence can be sampled.
    void sample_sequences(const SampleKey& key, std::span<const Item> rows, std::span<const Item> once, std::size_t m,
                          std::size_t length, std::span<const std::uint64_t> before, double beta);

  private:
    // Number of attempts at one position of a batch before all rows are searched.
    static constexpr std::uint32_t attempts = 256;
    // Number of searches through all rows, if writers overwrite each row that is found.
    static constexpr std::uint32_t searches = 16;

    struct alignas(memory::cache_line) Candidate {
        Sample sample;
        std::uint32_t position;  // in the batch
    };

    // Makes all positions of a batch of m pending. Row `height` of a slot and later ones are not sampled.
    void begin(std::size_t m, bool by_priority, std::int64_t height);
    void look(std::span<const std::uint64_t> before);
    void sample_pending(const SampleKey& key, std::span<const std::uint64_t> before);
    void sample_by_age();
    void sample_by_priority(const SampleKey& key);
    [[nodiscard]] bool placed(std::uint64_t age, std::uint32_t t, std::uint32_t lane, Place& place) const;
    [[nodiscard]] bool placed(std::size_t row, Place& place) const;
    void weigh(std::span<const Item> items, double beta) const;
    [[nodiscard]] bool follow(Candidate& candidate, std::size_t kept);
    void take(std::span<const Item> items);
    void gather_all(std::span<const Item> items, std::size_t begin, std::size_t end) const;
    void take_sequences(std::span<const Item> rows, std::span<const Item> once, std::size_t length);
    [[nodiscard]] bool unroll(Candidate& start, std::size_t length);
    [[nodiscard]] bool add_row(Candidate& start, std::uint32_t position, const Place& place, std::int64_t from);
    [[nodiscard]] bool go_on(const Window& window, Place& place, bool last) const;
    void blank(std::span<const Item> rows) const;
    // Inlined by force: gcc removes calls of a function that does nothing but ask for memory.
    [[gnu::always_inline]] inline void ask_for(std::size_t begin, std::size_t end, std::span<const Item> items) const;
    void gather(const Item& item, std::span<const Candidate> candidates) const;
    void gather_stacks(const Item& item, std::size_t begin, std::size_t end) const;
    void check(std::span<const Candidate> copied);
    // able: true for a candidate that can be sampled. nothing: the error if there is none.
    template <class Able>
    void sample_from_all(const SampleKey& key, const Able& able, const char* nothing);
    [[nodiscard]] std::vector<std::uint64_t> sums_of(std::span<const Place> places) const;
    [[nodiscard]] std::uint64_t bits(std::size_t i) const;

    memory::Table<>& table_;
    Rows rows_;
    Chains chains_;
    const SumTree<>* tree_;
    const Level& level_;
    std::size_t frames_;             // frames of the deepest stack; 0: there is no stack
    std::vector<Place> lanes_;       // writer and lane of all lanes, in order
    std::vector<Window> windows_;
    std::int64_t largest_ = 0;       // window
    std::size_t m_ = 0;
    bool by_priority_ = false;
    std::int64_t height_ = 0;
    std::vector<std::uint32_t> pending_;
    std::vector<std::uint32_t> words_;
    std::vector<Candidate> candidates_;
    std::vector<Candidate> starts_;     // of sequences
    std::vector<std::uint32_t> blank_;  // positions in a batch of sequences whose row carries no transition
    std::vector<std::uint32_t> last_;   // those of them that hold the last observation of a truncated episode
    std::vector<std::int64_t> stacks_;  // [candidates, 2, frames]: the frames of the row, and those of the row before the
                                        // next observation; as Chains::frames gives them
    std::vector<std::uint64_t> oldest_;
    std::vector<std::uint64_t> points_;  // into the sum of all priorities
    std::vector<std::size_t> found_;     // the rows at these points
    std::vector<double> share_;          // [m], each row's share of that sum
};

// For tables in which rows that can be sampled are rare, or have only a small share of all priorities. Finds all of these
// rows, and samples from them.
template <class Able>
void Sampler::sample_from_all(const SampleKey& key, const Able& able, const char* nothing) {
    std::vector<Place> found;
    Candidate tried{};
    for (std::int64_t age = 0; age < largest_; ++age)
        for (std::int64_t t = 0; t < height_; ++t)
            for (std::size_t lane = 0; lane < lanes_.size(); ++lane)
                if (placed(static_cast<std::uint64_t>(age), static_cast<std::uint32_t>(t), static_cast<std::uint32_t>(lane),
                           tried.sample.place) &&
                    able(tried))
                    found.push_back(tried.sample.place);
    if (found.empty()) throw Nothing(nothing);
    const std::vector<std::uint64_t> sums = sums_of(found);
    const double total = by_priority_ ? static_cast<double>(tree_->total()) : 0.0;
    const std::size_t count = pending_.size();
    words_.resize(4 * count);
    level_.random_words(key, pending_.data(), count, words_.data());
    candidates_.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
        const auto above = std::upper_bound(sums.begin(), sums.end(), below(bits(i), sums.back()));
        const auto at = static_cast<std::size_t>(above - sums.begin());
        if (by_priority_) share_[pending_[i]] = static_cast<double>(*above - (at > 0 ? sums[at - 1] : 0)) / total;
        candidates_[i].position = pending_[i];
        candidates_[i].sample.place = found[at];
    }
    pending_.clear();
}

}  // namespace penstock::replay
