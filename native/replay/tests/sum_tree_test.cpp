#include "penstock/replay/sum_tree.hpp"

#include <cstdint>
#include <random>
#include <vector>

#include "check.hpp"

using penstock::replay::SumTree;
using penstock::test::Memory;

namespace {

std::uint64_t sum_of(const SumTree<>& tree) {
    std::uint64_t sum = 0;
    for (std::size_t row = 0; row < tree.capacity(); ++row) {
        sum += tree.leaf(row).priority;
    }
    return sum;
}

}  // namespace

TEST(sum_tree, every_level_agrees_with_single_words) {
    constexpr std::size_t capacity = 3000;
    for (const penstock::replay::Level* level : penstock::replay::levels()) {
        const Memory memory(SumTree<>::required(capacity));
        SumTree<> tree(memory.get(), capacity, level->sums);
        const SumTree<> plain(memory.get(), capacity);
        std::mt19937_64 chance(5);
        std::vector<std::uint64_t> priority(capacity);
        std::vector<std::size_t> touched(capacity);
        for (std::uint64_t& one : priority) {
            one = chance() % 4 == 0 ? 0 : chance() >> 28;
        }
        tree.set(0, 9, priority, touched);
        CHECK(tree.total() == sum_of(tree) && plain.total() == tree.total());
        std::vector<std::uint64_t> points(2000), again;
        std::vector<std::size_t> rows(2000), rows_again(2000);
        for (std::uint64_t& point : points) {
            point = chance() % tree.total();
        }
        again = points;
        tree.find(points, rows);
        plain.find(again, rows_again);
        CHECK(rows == rows_again && points == again);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            CHECK(points[i] < tree.leaf(rows[i]).priority);  // the rest of the point lies within the leaf
        }
        points.assign(1, tree.total());
        rows.resize(1);
        tree.find(points, rows);
        CHECK(rows[0] == SumTree<>::nowhere);
    }
}

TEST(sum_tree, a_death_at_each_point_is_mended) {
    constexpr std::size_t capacity = 300;
    const auto script = [](unsigned char* memory) {
        SumTree<> tree(memory, capacity);
        const std::vector<std::uint64_t> ones(4, 1), twos(3, 2);
        const std::vector<std::int64_t> rows{17, 18, 290}, stamps{1, 1, 0};
        std::vector<std::size_t> touched(4);
        tree.set(16, 1, ones, touched);
        CHECK(tree.update(rows, stamps, twos, touched) == 3);
    };
    const int points = penstock::test::die_at_each_point(
        SumTree<>::required(capacity), script, [](unsigned char* memory, const std::string&) {
            SumTree<> tree(memory, capacity);
            tree.recover();
            CHECK(tree.total() == sum_of(tree));
        });
    CHECK(points > 20);
}
