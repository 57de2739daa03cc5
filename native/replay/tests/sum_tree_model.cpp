// The sum tree under every schedule:
//   - whenever no process is at work, the sums are exact, after any death;
//   - a leaf is never changed under another stamp;
//   - a sampler finds only priorities that some process has stored.
#include "penstock/replay/sum_tree.hpp"

#include <array>

#include "search.hpp"
#include "sim_atomic.hpp"

namespace penstock::model {
namespace {

constexpr std::size_t rows = 4;

// Three levels: two leaves below each node, two nodes below the root.
template <unsigned priority_bits>
using SimTree = replay::SumTree<SimAtomic, 2, priority_bits>;

struct Change {
    std::size_t row;
    std::uint64_t priority;
};

// Each process changes its own rows. The last process may sample instead.
template <unsigned priority_bits>
class Shares final : public Scenario {
  public:
    using Tree = SimTree<priority_bits>;
    using Changes = std::array<std::vector<Change>, 3>;

    Shares(unsigned char* memory, const Changes& changes, int samples) : tree_(memory, rows), changes_(changes), samples_(samples) {}

    void live(std::size_t process, unsigned life) override {
        if (life > 0) {
            tree_.recover();
        }
        for (std::size_t& next = next_[process]; next < changes_[process].size();) {
            const Change& change = changes_[process][next++];  // a process that dies during a change goes on with the next one
            stored_[change.row][change.priority] = true;
            const auto row = static_cast<std::int64_t>(change.row);
            const std::int64_t stamp = 0;
            std::array<std::size_t, 32> touched{};
            HOLDS(tree_.update({&row, 1}, {&stamp, 1}, {&change.priority, 1}, touched) == 1);
        }
        if (changes_[process].empty()) {
            sample();
        }
    }

    void finish() override {
        std::uint64_t sum = 0;
        for (std::size_t row = 0; row < rows; ++row) {
            sum += tree_.leaf(row).priority;
        }
        HOLDS(tree_.total() == sum);
    }

  private:
    void sample() {
        for (int i = 0; i < samples_; ++i) {
            std::array<std::uint64_t, 1> points{tree_.total() / 2};
            std::array<std::size_t, 1> found{};
            tree_.find(points, found);
            if (found[0] == Tree::nowhere) {
                continue;
            }
            const std::uint64_t priority = tree_.leaf(found[0]).priority;
            HOLDS(priority == 0 || stored_[found[0]][priority]);
        }
    }

    Tree tree_;
    Changes changes_;
    int samples_;
    std::array<std::size_t, 3> next_{};
    std::array<std::array<bool, 16>, rows> stored_{};
};

// Rows get a new stamp from their writer, while another process still changes one of them under the old one.
class Stamps final : public Scenario {
  public:
    explicit Stamps(unsigned char* memory) : tree_(memory, rows) {}

    void live(std::size_t process, unsigned life) override {
        if (life > 0) {
            tree_.recover();
        }
        std::array<std::size_t, 32> touched{};
        if (process == 0) {
            const std::array<std::uint64_t, 2> priority{7, 8};
            tree_.set(0, 1, priority, touched);  // done again after a death
        } else {
            const std::array<std::int64_t, 2> row{0, 2};
            const std::array<std::int64_t, 2> stamp{0, 0};
            const std::array<std::uint64_t, 2> priority{3, 4};
            tree_.update(row, stamp, priority, touched);
        }
    }

    void finish() override {
        for (std::size_t row = 0; row < 2; ++row) {
            HOLDS(tree_.leaf(row).tag == 1 && tree_.leaf(row).priority == 7 + row);
        }
        HOLDS(tree_.total() == 15 + tree_.leaf(2).priority);
    }

  private:
    SimTree<36> tree_;
};

template <unsigned priority_bits = 36>
Setting shares(const char* name, const std::array<std::vector<Change>, 3>& changes, std::size_t processes, unsigned mortal,
               Bounds bounds) {
    return {name, SimTree<priority_bits>::required(rows), processes, mortal, bounds, [=](unsigned char* memory) {
                return std::make_unique<Shares<priority_bits>>(memory, changes, 2);
            }};
}

Setting siblings() {
    return shares("sum tree, two leaves of a node", {{{{0, 5}, {0, 2}}, {{1, 3}, {1, 4}}, {}}}, 2, 0b11, {2, 1, 1, 3});
}

Setting three() {
    return shares("sum tree, three at work", {{{{0, 5}}, {{1, 3}}, {{2, 4}}}}, 3, 0, {3, 1, 0, 3});
}

Setting sampled() {
    return shares("sum tree, sampled from", {{{{0, 5}, {0, 2}}, {{2, 3}}, {}}}, 3, 0b11, {2, 1, 1, 2});
}

Setting stamps() {
    return {"sum tree, a new stamp", SimTree<36>::required(rows), 2, 0b11, {3, 2, 1, 3},
            [](unsigned char* memory) { return std::make_unique<Stamps>(memory); }};
}

}  // namespace

TEST(sum_tree, two_leaves_of_a_node) { holds(siblings()); }

TEST(sum_tree, three_at_work) { holds(three()); }

TEST(sum_tree, beside_a_sample) { holds(sampled()); }

TEST(sum_tree, a_new_stamp) { holds(stamps()); }

TEST(sum_tree, every_operation_is_needed) {
    every_operation_is_needed("sum_tree.hpp", {siblings(), three(), stamps()}, {});
}

// Sums are so wide that the root has no bit for a version.
TEST(sum_tree, a_missing_version_is_found) {
    fails(shares<62>("sum tree, without versions", {{{{0, 5}, {0, 0}, {0, 5}}, {{2, 3}, {2, 0}, {2, 3}}, {}}}, 2, 0,
                     {4, 0, 0, 4}));
}

}  // namespace penstock::model
