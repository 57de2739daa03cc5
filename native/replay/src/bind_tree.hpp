// The Python class of sum trees. Priorities are numbers, and are checked.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "buffer.hpp"
#include "penstock/replay/sum_tree.hpp"

namespace penstock::replay {

namespace nb = nanobind;

template <class Number>
using Vector = nb::ndarray<Number, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

class PySumTree {
  public:
    PySumTree(nb::handle bytes, std::size_t capacity)
        : buffer_(memory::structure_memory("a sum tree", bytes, memory::Buffer::writable, SumTree<>::required(capacity))),
          tree_(buffer_.data(), capacity, best_level().sums) {}

    void set(std::size_t first, std::uint64_t stamp, const Vector<const double>& priorities);
    std::size_t update(const Vector<const std::int64_t>& rows, const Vector<const std::int64_t>& stamps,
                       const Vector<const double>& priorities);
    void sample(std::uint64_t seed, std::uint64_t number, const Vector<std::int64_t>& rows,
                const Vector<std::int64_t>& stamps, const Vector<double>& probabilities);
    // The same without Python, of rows that are in the tree.
    std::size_t change(std::span<const std::int64_t> rows, std::span<const std::int64_t> stamps,
                       std::span<const double> priorities) {
        to_fixed(priorities);
        return tree_.update(rows, stamps, fixed_, touched_);
    }
    [[nodiscard]] std::vector<double> read(std::span<const std::int64_t> rows) const {
        std::vector<double> found;
        for (const std::int64_t row : rows) found.push_back(number(tree_.leaf(static_cast<std::size_t>(row)).priority));
        return found;
    }
    void recover() { tree_.recover(); }
    [[nodiscard]] double total() const { return number(tree_.total()); }
    [[nodiscard]] double max_priority() const { return number(tree_.largest()); }
    [[nodiscard]] const SumTree<>& tree() const { return tree_; }

  private:
    // One unit is 2^-22: 1e-6 is four of them, and 16,384 is the first number that is too large.
    static constexpr double units = 0x1p22;

    static double number(std::uint64_t fixed) { return static_cast<double>(fixed) / units; }
    void to_fixed(std::span<const double> priorities);
    void check_rows(std::size_t first, std::size_t count) const;

    memory::Buffer buffer_;
    SumTree<> tree_;
    std::vector<std::uint64_t> fixed_;
    std::vector<std::size_t> touched_;
};

void bind_tree(nb::module_& module);

}  // namespace penstock::replay
