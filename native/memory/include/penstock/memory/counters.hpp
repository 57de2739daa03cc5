// Counters: a grid of 64-bit integers, [rows, names]. Each row has its own writer and its own cache lines.
//
// No recovery is needed, because each cell is valid at every instant. Zero-filled memory is a valid grid.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "penstock/memory/words.hpp"

namespace penstock::memory {

template <template <class> class Atomic = std::atomic>
class Counters {
  public:
    using Cell = Atomic<std::int64_t>;

    // Number of cells from one row to the next.
    static constexpr std::size_t stride(std::size_t names) {
        return round_to_line(names * sizeof(Cell)) / sizeof(Cell);
    }

    static constexpr std::size_t required(std::size_t rows, std::size_t names) {
        return rows * stride(names) * sizeof(Cell);
    }

    Counters(void* memory, std::size_t names) : cells_(static_cast<Cell*>(memory)), stride_(stride(names)) {}

    // release and acquire: the sender counts a row, then the receiver counts it. A reader that reads the receiver's counter
    // first and the sender's counter second never sees more rows received than sent.
    void add(std::size_t row, std::size_t name, std::int64_t amount) {
        cell(row, name).fetch_add(amount, std::memory_order_release);
    }
    void set(std::size_t row, std::size_t name, std::int64_t value) {
        cell(row, name).store(value, std::memory_order_release);
    }
    [[nodiscard]] std::int64_t get(std::size_t row, std::size_t name) const {
        return cell(row, name).load(std::memory_order_acquire);
    }

  private:
    [[nodiscard]] Cell& cell(std::size_t row, std::size_t name) const { return cells_[row * stride_ + name]; }

    Cell* cells_;
    std::size_t stride_;
};

}  // namespace penstock::memory
