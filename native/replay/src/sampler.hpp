// Samples rows of a table and gathers them while writers write. A row that was overwritten during its copy is sampled again.
// Knows no Python. One call at a time.
#pragma once

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

enum class Kind { row, next, reward, discount, index, stamp, importance, weight };

// One array of a batch: [m, ...] of `nbytes` each.
struct Item {
    Kind kind;
    const Column* column;  // for a row or a next observation
    std::byte* to;
};

class Sampler {
  public:
    // tree: leaf = flat row. Without a tree all rows are equally likely.
    // steps: the same as chains, but with one step.
    Sampler(memory::Table<>& table, const Rows& rows, const Chains& chains, const Chains& steps, const SumTree<>* tree,
            const Level& level);

    // Fills a batch of m samples. Throws Nothing if no row can be sampled.
    // before: one sequence for each writer, or nothing. Only lower sequences are sampled.
    // beta: the exponent of importance weights, with a tree.
    void sample(const Draw& key, std::span<const Item> items, std::size_t m, std::span<const std::uint64_t> before,
                double beta);

    // Fills [length + 1, m] rows: m sequences of `length` rows of one lane, and the observation behind each. The first row
    // of a sequence is valid. Each row's reward is that of one step. Samples uniformly, also with a tree.
    void sample_sequences(const Draw& key, std::span<const Item> items, std::size_t m, std::size_t length,
                          std::span<const std::uint64_t> before);

    // Fills a batch with the next m rows from a position on, oldest first. Returns the position behind them. Positions count
    // (step, lane) of all lanes from the table's beginning on. Overwritten rows are skipped.
    std::uint64_t take_in_order(std::uint64_t position, std::span<const Item> items, std::size_t m,
                                std::span<const std::uint64_t> before);

  private:
    // Number of attempts at one position of a batch before all rows are searched.
    static constexpr std::uint32_t attempts = 256;
    // Number of searches through all rows, if writers overwrite each row that is found.
    static constexpr std::uint32_t searches = 16;

    struct alignas(memory::cache_line) Candidate {
        Sample sample;
        std::uint32_t position;  // in the batch
    };

    // Makes all positions of a batch of m pending.
    void begin(std::size_t m, bool by_priority);
    void look(std::span<const std::uint64_t> before);
    void draw(const Draw& key, std::span<const std::uint64_t> before);
    void draw_by_age();
    void draw_by_priority(const Draw& key);
    [[nodiscard]] bool placed(std::uint64_t age, std::uint32_t t, std::uint32_t lane, Place& place) const;
    [[nodiscard]] bool placed(std::size_t row, Place& place) const;
    void weigh(std::span<const Item> items, double beta) const;
    [[nodiscard]] bool follow(Candidate& candidate, std::size_t kept);
    void take(std::span<const Item> items);
    void gather_all(std::span<const Item> items, std::size_t begin, std::size_t end) const;
    [[nodiscard]] bool unroll(const Candidate& start, std::size_t length);
    void find_in_order(std::uint64_t& position, std::size_t m);
    // Inlined by force: gcc removes calls of a function that does nothing but ask for memory.
    [[gnu::always_inline]] inline void ask_for(std::size_t begin, std::size_t end, std::span<const Item> items) const;
    static void gather(const Item& item, std::span<const Candidate> candidates);
    void gather_stacks(const Item& item, std::size_t begin, std::size_t end) const;
    void check();
    void draw_from_all(const Draw& key);
    [[nodiscard]] std::vector<std::uint64_t> sums_of(std::span<const Place> places) const;
    [[nodiscard]] std::uint64_t bits(std::size_t i) const;

    memory::Table<>& table_;
    Rows rows_;
    Chains chains_;
    Chains steps_;  // with one step, for sequences
    const SumTree<>* tree_;
    const Level& level_;
    std::size_t frames_;             // frames of the deepest stack; 0: there is no stack
    std::vector<Place> lanes_;       // writer and lane of all lanes, in order
    std::vector<Window> windows_;
    std::int64_t largest_ = 0;       // window
    std::size_t m_ = 0;
    bool by_priority_ = false;
    std::vector<std::uint32_t> pending_;
    std::vector<std::uint32_t> words_;
    std::vector<Candidate> candidates_;
    std::vector<Candidate> starts_;  // of sequences
    std::vector<std::int64_t> stacks_;  // [candidates, 2, frames]: the frames of the row, and those of the row before the
                                        // next observation; as Chains::frames gives them
    std::vector<std::uint64_t> oldest_;
    std::vector<std::uint64_t> points_;  // into the sum of all priorities
    std::vector<std::size_t> found_;     // the rows at these points
    std::vector<double> share_;          // [m], each row's share of that sum
};

}  // namespace penstock::replay
