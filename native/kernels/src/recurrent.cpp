#include "recurrent.hpp"

#include <algorithm>
#include <cstring>

namespace penstock::kernels {

namespace {

std::size_t floats(std::int64_t rows, std::int64_t columns) { return static_cast<std::size_t>(rows * columns); }

std::size_t bytes(std::int32_t count) { return static_cast<std::size_t>(count) * sizeof(float); }

}  // namespace

Recurrent::Recurrent(const LayerShape& shape, const Level& level)
    : shape_(shape), padded_(round_up(shape.outputs, level.width)),
      join_stride_(round_up(shape.inputs + shape.outputs, level.width)),
      weight_(floats(shape.inputs + shape.outputs, gates() * padded_)), bias_(floats(4, padded_)),
      joined_(floats(kRowsAtOnce, join_stride_)), sums_(floats(kRowsAtOnce, 4 * padded_)),
      state_(floats(kRowsAtOnce, padded_)) {}

void Recurrent::load(const float* flat) {
    const std::ptrdiff_t size = shape_.outputs;
    // The gates of one row of the flat vector, each to its padded place.
    const auto spread = [&](float* to) {
        for (std::int32_t gate = 0; gate < gates(); ++gate, flat += size)
            std::memcpy(to + std::ptrdiff_t{gate} * padded_, flat, bytes(shape_.outputs));
    };
    for (std::int32_t k = 0; k < shape_.inputs + shape_.outputs; ++k)
        spread(weight_.data() + std::ptrdiff_t{k} * gates() * padded_);
    spread(bias_.data());
    if (shape_.kind == LayerKind::lstm) return;
    // A GRU's r and z are sums of x and h; of n, both parts are needed.
    float* const bias = bias_.data();
    for (std::ptrdiff_t gate = 0; gate < 2; ++gate, flat += size)
        for (std::ptrdiff_t u = 0; u < size; ++u) bias[gate * padded_ + u] += flat[u];
    std::memcpy(bias + std::ptrdiff_t{3} * padded_, flat, bytes(shape_.outputs));
}

void Recurrent::run(const Level& level, const float* x, std::ptrdiff_t x_stride, const Carry& carry, std::int64_t begin,
                    std::int32_t rows, float* out, std::ptrdiff_t out_stride) {
    join(x, x_stride, carry, begin, rows);
    multiply(level, rows);
    const bool lstm = shape_.kind == LayerKind::lstm;
    (lstm ? level.lstm : level.gru)({sums_.data(), state_.data(), out, out_stride, rows, padded_});
    if (carry.after == nullptr) return;
    for (std::int32_t r = 0; r < rows; ++r) {
        std::memcpy(carry.after[0].row(begin + r), out + r * out_stride, bytes(shape_.outputs));
        if (lstm) std::memcpy(carry.after[1].row(begin + r), state_.data() + std::ptrdiff_t{r} * padded_, bytes(shape_.outputs));
    }
}

void Recurrent::join(const float* x, std::ptrdiff_t x_stride, const Carry& carry, std::int64_t begin, std::int32_t rows) {
    const Rows& kept = carry.before[arrays() - 1];
    for (std::int32_t r = 0; r < rows; ++r) {
        float* const joined = joined_.data() + r * join_stride_;
        float* const state = state_.data() + std::ptrdiff_t{r} * padded_;
        std::memcpy(joined, x + r * x_stride, bytes(shape_.inputs));
        if (carry.first.at<bool>(begin + r)) {
            std::memset(joined + shape_.inputs, 0, bytes(shape_.outputs));
            std::memset(state, 0, bytes(shape_.outputs));
        } else {
            std::memcpy(joined + shape_.inputs, carry.before[0].row(begin + r), bytes(shape_.outputs));
            std::memcpy(state, kept.row(begin + r), bytes(shape_.outputs));
        }
        // A step with NaN leaves NaN in the padding, too.
        std::fill(state + shape_.outputs, state + padded_, 0.0F);
    }
}

void Recurrent::multiply(const Level& level, std::int32_t rows) {
    const std::int32_t columns = gates() * padded_, both = 4 * padded_;
    const auto product = [&](std::int32_t first, std::int32_t depth, std::int32_t from, std::int32_t to, std::int32_t count) {
        level.product({joined_.data() + first, join_stride_, 1, weight_.data() + std::ptrdiff_t{first} * columns + from, columns,
                       bias_.data() + to, 0, sums_.data() + to, both, rows, depth, count});
    };
    const std::int32_t all = shape_.inputs + shape_.outputs, n = 2 * padded_;
    if (shape_.kind == LayerKind::lstm) return product(0, all, 0, 0, columns);
    product(0, all, 0, 0, n);
    product(0, shape_.inputs, n, n, padded_);
    product(shape_.inputs, shape_.outputs, n, n + padded_, padded_);
}

}  // namespace penstock::kernels
