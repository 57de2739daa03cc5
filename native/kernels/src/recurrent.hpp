// One recurrent layer, packed for a level, and its carry in arrays of lanes.
// Runs one step at a time, and keeps no carry from one call to the next.
#pragma once

#include <cstddef>
#include <cstdint>

#include "layers.hpp"
#include "penstock/kernels/level.hpp"
#include "penstock/kernels/rows.hpp"

namespace penstock::kernels {

// The carry of all lanes: arrays [n, size] of each recurrent layer in order; h, then c of an LSTM.
struct Carry {
    Rows first;                    // bool [n]: the carry of such a lane counts as zero
    const Rows* before = nullptr;  // what the step begins with
    const Rows* after = nullptr;   // what the next step begins with; may be the arrays of `before`. nullptr: not wanted

    // Without the first arrays, which belong to other layers.
    Carry without(std::int32_t arrays) const {
        return {first, before == nullptr ? nullptr : before + arrays, after == nullptr ? nullptr : after + arrays};
    }
};

class Recurrent {
public:
    Recurrent(const LayerShape& shape, const Level& level);

    // `flat` holds W, U and b of an LSTM; W, U, b and d of a GRU.
    void load(const float* flat);
    // rows <= kRowsAtOnce rows of x [rows, x_stride], those of lanes begin, begin + 1, ...; writes the next h to `out`
    // [rows, out_stride], up to `padded` columns. Uses the first `arrays` arrays of `carry`.
    void run(const Level& level, const float* x, std::ptrdiff_t x_stride, const Carry& carry, std::int64_t begin,
             std::int32_t rows, float* out, std::ptrdiff_t out_stride);

    std::int32_t padded() const { return padded_; }
    std::int32_t arrays() const { return shape_.kind == LayerKind::lstm ? 2 : 1; }

private:
    std::int32_t gates() const { return shape_.kind == LayerKind::lstm ? 4 : 3; }
    void join(const float* x, std::ptrdiff_t x_stride, const Carry& carry, std::int64_t begin, std::int32_t rows);
    void multiply(const Level& level, std::int32_t rows);

    LayerShape shape_;
    std::int32_t padded_;        // cells, rounded up to the level's width
    std::ptrdiff_t join_stride_;
    Floats weight_;              // [inputs + cells, gates * padded]: W above U, zero beyond each gate's cells
    Floats bias_;                // [4 * padded], of the sums
    Floats joined_;              // [kRowsAtOnce, join_stride]: x beside h
    Floats sums_;                // [kRowsAtOnce, 4 * padded]
    Floats state_;               // [kRowsAtOnce, padded]: c of an LSTM, h of a GRU
};

}  // namespace penstock::kernels
