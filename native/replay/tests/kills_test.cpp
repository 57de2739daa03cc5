// A sum tree whose users are killed at each place in turn. The parent reaps, recovers and checks the sums.
#include <cstdint>
#include <string>
#include <vector>

#include "check.hpp"
#include "kills.hpp"
#include "penstock/replay/sum_tree.hpp"

using namespace penstock::test;
using penstock::replay::SumTree;

namespace {

constexpr std::size_t capacity = 40;

template <template <class> class Atomic>
void work(unsigned char* memory) {
    SumTree<Atomic> tree(memory, capacity);
    const std::vector<std::uint64_t> ones(2, 1), others{5, 6};
    const std::vector<std::int64_t> rows{17, 35}, stamps{3, 0};
    std::vector<std::size_t> touched(2);
    tree.set(16, 3, ones, touched);
    CHECK(tree.update(rows, stamps, others, touched) == 2);
    tree.raise(6);
}

void check_sum(unsigned char* memory) {
    const SumTree<> tree(memory, capacity);
    std::uint64_t sum = 0;
    for (std::size_t row = 0; row < capacity; ++row) {
        sum += tree.leaf(row).priority;
    }
    CHECK(tree.total() == sum);
}

}  // namespace

TEST(kills, a_sum_tree) {
    const auto check = [](unsigned char* memory, const std::string&) {
        SumTree<>(memory, capacity).recover();
        check_sum(memory);
        work<std::atomic>(memory);
        check_sum(memory);
        const SumTree<> tree(memory, capacity);
        CHECK(tree.total() == 1 + 5 + 6 && tree.leaf(17).priority == 5 && tree.largest() == 6);
    };
    CHECK(kill_at_each_point(SumTree<>::required(capacity), leave_zero, work<Fallible>, check) > 60);
    for (const char* point : {"sum_tree.set.between", "sum_tree.update.between", "sum_tree.refresh.before", "sum_tree.refresh.after"}) {
        CHECK(killed_at.contains(point));
    }
}

// If a process dies during a recovery, the next recovery does the rest.
TEST(kills, a_recovery) {
    const auto recover = [](unsigned char* memory) { SumTree<Fallible>(memory, capacity).recover(); };
    const auto check = [](unsigned char* memory, const std::string&) {
        check_sum(memory);  // all sums were exact before
        work<std::atomic>(memory);
        check_sum(memory);
    };
    CHECK(kill_at_each_point(SumTree<>::required(capacity), work<std::atomic>, recover, check) > 30);
}
