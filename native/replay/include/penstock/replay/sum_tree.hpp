// Sum tree: priorities of the rows of a table, and their sums. With it a row is sampled in proportion to its priority.
//
// A leaf is one word: a tag of the row's stamp, and a priority as an integer. An inner node is one word: a version, and
// the sum of its children.
//
// A process that has changed leaves then refreshes their ancestors, level by level (Jayanti 2002,
// https://doi.org/10.1145/571825.571868):
//   1. It reads the node.
//   2. It sums the children.
//   3. It exchanges the node if the node has not changed since step 1.
//   4. If the exchange fails, it repeats steps 1 to 3 once. If it fails again, another refresh has begun after this one
//      and has finished. That refresh has seen the same leaves, so nothing is left to do.
//
// So all sums are exact whenever no process changes the tree, and no process ever waits for another. A process that dies
// leaves sums out of date. The next refresh of the same nodes corrects them, and so does recover(). Zero-filled memory is
// a valid tree, with all priorities 0.
//
// Race that the version prevents:
//   1. A refresh reads a node and its children, and then sleeps.
//   2. Later refreshes change the node; the last one gives it the sum that it had at first.
//   3. The first refresh wakes and would overwrite the node with its outdated sum.
// The version has the bits that the sum leaves free: 8 at the root over a million rows. So step 3 can still happen if the
// node was changed exactly a multiple of 256 times. The next refresh corrects that as well.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "penstock/memory/fault.hpp"
#include "penstock/memory/words.hpp"
#include "penstock/replay/level.hpp"

namespace penstock::replay {

template <template <class> class Atomic = std::atomic, std::size_t arity = 16, unsigned priority_bits = 36>
class SumTree {
  public:
    using Word = Atomic<std::uint64_t>;
    static constexpr std::uint64_t priorities = std::uint64_t{1} << priority_bits;  // every priority is below this
    static constexpr std::size_t nowhere = ~std::size_t{0};

    struct Leaf {
        std::uint64_t tag;
        std::uint64_t priority;
    };

    // The part of a stamp that a leaf holds. Two stamps of one row that are 2^28 apart have the same tag.
    static constexpr std::uint64_t tag_of(std::uint64_t stamp) { return stamp & (~std::uint64_t{0} >> priority_bits); }

    static constexpr std::size_t required(std::size_t capacity) {
        std::size_t nbytes = memory::cache_line;
        for (std::size_t count = capacity;; count = groups(count)) {
            nbytes += level_bytes(count);
            if (count <= 1) {
                return nbytes;
            }
        }
    }

    SumTree(void* memory, std::size_t capacity, const NodeSums& sums = {})
        : largest_(static_cast<Word*>(memory)), sums_(sums) {
        auto* at = static_cast<unsigned char*>(memory) + memory::cache_line;
        std::size_t leaves = 1;  // below a node
        for (std::size_t count = capacity;; count = groups(count)) {
            const std::size_t below = leaves < capacity ? leaves : capacity;
            const auto bits = priority_bits + static_cast<unsigned>(std::bit_width(below - 1));
            levels_[depth_++] = {reinterpret_cast<Word*>(at), count, bits < 64 ? (std::uint64_t{1} << bits) - 1 : ~std::uint64_t{0}};
            at += level_bytes(count);
            if (count <= 1) {
                return;
            }
            leaves *= arity;
        }
    }

    // Gives a run of rows a new stamp and priorities. Only the writer of these rows may call it.
    // touched: space for as many numbers, here and in update().
    void set(std::size_t first, std::uint64_t stamp, std::span<const std::uint64_t> priority, std::span<std::size_t> touched) {
        for (std::size_t i = 0; i < priority.size(); ++i) {
            // seq_cst: as in update(). It is an exchange because other processes may change the leaf under its old stamp.
            leaves()[first + i].exchange(packed(tag_of(stamp), priority[i]), std::memory_order_seq_cst);
            PENSTOCK_FAULT_POINT("sum_tree.set.between");
            touched[i] = first + i;
        }
        refresh(touched.first(priority.size()));
    }

    // Changes the priorities of rows that still have these stamps. Returns the number of these rows.
    std::size_t update(std::span<const std::int64_t> rows, std::span<const std::int64_t> stamps,
                       std::span<const std::uint64_t> priority, std::span<std::size_t> touched) {
        std::size_t count = 0;
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const auto row = static_cast<std::size_t>(rows[i]);
            const std::uint64_t tag = tag_of(static_cast<std::uint64_t>(stamps[i]));
            if (change(leaves()[row], tag, priority[i])) {
                touched[count++] = row;
            }
            PENSTOCK_FAULT_POINT("sum_tree.update.between");
        }
        // Neighbours share ancestors.
        if (!std::is_sorted(touched.begin(), touched.begin() + static_cast<std::ptrdiff_t>(count))) {
            std::sort(touched.begin(), touched.begin() + static_cast<std::ptrdiff_t>(count));
        }
        refresh(touched.first(count));
        return count;
    }

    // Refreshes every node, for example after a death. Other processes may use the tree meanwhile.
    void recover() {
        for (std::size_t level = 1; level < depth_; ++level) {
            for (std::size_t node = 0; node < levels_[level].count; ++node) {
                refresh(level, node);
            }
        }
    }

    // relaxed, wherever a sampler reads: it checks the rows that it finds against the table afterwards.
    [[nodiscard]] std::uint64_t total() const {
        const Level& root = levels_[depth_ - 1];
        return root.words->load(std::memory_order_relaxed) & root.mask;
    }

    [[nodiscard]] Leaf leaf(std::size_t row) const {
        const std::uint64_t word = leaves()[row].load(std::memory_order_relaxed);
        return {word >> priority_bits, word & (priorities - 1)};
    }

    // For each point in [0, total): the row at which the sum of all priorities up to it passes the point, or `nowhere` if
    // sums were changing. Goes level by level for all points together, so that their memory is prefetched.
    void find(std::span<std::uint64_t> points, std::span<std::size_t> rows) const {
        for (std::size_t& row : rows) {
            row = 0;
        }
        for (std::size_t level = depth_ - 1; level-- > 0;) {
            const Level& below = levels_[level];
            for (std::size_t i = 0; i < points.size(); ++i) {
                if (rows[i] == nowhere) {
                    continue;
                }
                const std::size_t first = rows[i] * arity;
                const std::size_t child = find_child(below.words + first, below.mask, points[i]);
                rows[i] = child == arity ? nowhere : first + child;
                if (level > 0 && child != arity) {
                    prefetch(levels_[level - 1].words + rows[i] * arity);
                }
            }
        }
    }

    // The largest value that raise() was ever given.
    [[nodiscard]] std::uint64_t largest() const { return largest_->load(std::memory_order_relaxed); }

    void raise(std::uint64_t priority) {
        // relaxed: no other data depends on this number.
        std::uint64_t known = largest_->load(std::memory_order_relaxed);
        while (known < priority &&
               !largest_->compare_exchange_strong(known, priority, std::memory_order_relaxed, std::memory_order_relaxed)) {
        }
    }

    [[nodiscard]] std::size_t capacity() const { return levels_[0].count; }

  private:
    static constexpr std::size_t most_levels = 64;

    struct Level {
        Word* words = nullptr;
        std::size_t count = 0;
        std::uint64_t mask = 0;  // the bits of the sum; the bits above are the version
    };

    static constexpr std::size_t groups(std::size_t count) { return (count + arity - 1) / arity; }

    // Bytes of whole groups of siblings. Siblings that do not exist stay 0.
    static constexpr std::size_t level_bytes(std::size_t count) {
        return memory::round_to_line(groups(count) * arity * sizeof(Word));
    }

    static constexpr std::uint64_t packed(std::uint64_t tag, std::uint64_t priority) {
        return tag << priority_bits | priority;
    }

    [[nodiscard]] Word* leaves() const { return levels_[0].words; }

    static bool change(Word& leaf, std::uint64_t tag, std::uint64_t priority) {
        std::uint64_t word = leaf.load(std::memory_order_relaxed);  // relaxed: a guess; the exchange decides
        while (word >> priority_bits == tag) {
            // seq_cst: all processes agree that this exchange comes before this process's read of the node above. So a
            // process that exchanges that node after the read sees this leaf.
            if (leaf.compare_exchange_strong(word, packed(tag, priority), std::memory_order_seq_cst,
                                             std::memory_order_relaxed)) {
                return true;
            }
        }
        return false;
    }

    // Refreshes the ancestors of these leaves. Equal neighbours are refreshed once. Overwrites `nodes`.
    void refresh(std::span<std::size_t> nodes) {
        constexpr std::size_t ahead = 8;
        std::size_t count = nodes.size();
        for (std::size_t level = 1; level < depth_; ++level) {
            std::size_t kept = 0;
            for (std::size_t i = 0; i < count; ++i) {
                const std::size_t node = nodes[i] / arity;
                if (kept == 0 || nodes[kept - 1] != node) {
                    nodes[kept++] = node;
                }
            }
            count = kept;
            for (std::size_t i = 0; i < count; ++i) {
                if (i + ahead < count) {
                    prefetch(levels_[level - 1].words + nodes[i + ahead] * arity);
                    prefetch(levels_[level].words + nodes[i + ahead]);
                }
                refresh(level, nodes[i]);
            }
        }
    }

    void refresh(std::size_t level, std::size_t node) {
        const Level& own = levels_[level];
        const Level& below = levels_[level - 1];
        Word& word = own.words[node];
        for (int attempt = 0; attempt < 2; ++attempt) {
            // seq_cst: the read that the exchange below is compared with; see change().
            std::uint64_t seen = word.load(std::memory_order_seq_cst);
            const std::uint64_t sum = sum_children(below.words + node * arity, below.mask);
            const std::uint64_t version = (seen & ~own.mask) + own.mask + 1;  // 0 if the sum leaves no bit free
            PENSTOCK_FAULT_POINT("sum_tree.refresh.before");
            // seq_cst: for the node above, this node is what a changed leaf is for this one.
            if (word.compare_exchange_strong(seen, version | sum, std::memory_order_seq_cst, std::memory_order_relaxed)) {
                PENSTOCK_FAULT_POINT("sum_tree.refresh.after");
                return;
            }
        }
    }

    static constexpr bool single_words = !std::is_same_v<Atomic<std::uint64_t>, std::atomic<std::uint64_t>> || arity != 16;

    [[nodiscard]] std::uint64_t sum_children(const Word* first, std::uint64_t mask) const {
        if constexpr (!single_words) {
            if (sums_.sum != nullptr) {
                return sums_.sum(reinterpret_cast<const std::uint64_t*>(first), mask);
            }
        }
        std::uint64_t sum = 0;
        for (std::size_t i = 0; i < arity; ++i) {
            // seq_cst: sees every change that came before the exchange whose result the node held when it was read.
            sum += first[i].load(std::memory_order_seq_cst) & mask;
        }
        return sum;
    }

    [[nodiscard]] std::size_t find_child(const Word* first, std::uint64_t mask, std::uint64_t& point) const {
        if constexpr (!single_words) {
            if (sums_.find != nullptr) {
                return sums_.find(reinterpret_cast<const std::uint64_t*>(first), mask, point);
            }
        }
        for (std::size_t i = 0; i < arity; ++i) {
            const std::uint64_t value = first[i].load(std::memory_order_relaxed) & mask;
            if (point < value) {
                return i;
            }
            point -= value;
        }
        return arity;
    }

    // Inlined by force: gcc removes calls of a function that only prefetches memory.
    [[gnu::always_inline]] static void prefetch(const Word* first) {
        const auto* at = reinterpret_cast<const unsigned char*>(first);
        __builtin_prefetch(at);
        __builtin_prefetch(at + memory::cache_line);
    }

    Word* largest_;
    std::array<Level, most_levels> levels_{};  // leaves first
    std::size_t depth_ = 0;
    NodeSums sums_;
};

}  // namespace penstock::replay
