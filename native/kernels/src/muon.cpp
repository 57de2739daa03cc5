#include "muon.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace penstock::kernels {

namespace {

// See penstock.ops.optimizers.
constexpr float kLinear = 3.4445F, kCubic = -4.7750F, kQuintic = 2.0315F;
constexpr int kNewtonSchulzSteps = 5;

std::size_t floats(std::int32_t rows, std::int32_t columns) {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
}

// A matrix with at least as many columns as rows, and both rounded up to the width.
struct Wide {
    std::int32_t rows, columns, row_stride, column_stride;
};

Wide wide(const Matrix& matrix, std::int32_t width) {
    const std::int32_t rows = std::min(matrix.rows, matrix.columns), columns = std::max(matrix.rows, matrix.columns);
    return {rows, columns, round_up(rows, width), round_up(columns, width)};
}

}  // namespace

Matrix matrix_of(const Linear& linear, std::size_t offset) {
    return linear.narrow ? Matrix{offset, linear.outputs, linear.inputs, linear.depth}
                         : Matrix{offset, linear.inputs, linear.outputs, linear.padded};
}

Muon::Muon(std::vector<Matrix> matrices, const Level& level) : matrices_(std::move(matrices)), level_(level) {
    std::size_t own = 0, largest = 0, turned = 0, squared = 0, widest = 0;
    for (const Matrix& matrix : matrices_) {
        const Wide as = wide(matrix, level.width);
        own = std::max(own, matrix.size());
        largest = std::max(largest, floats(as.rows, as.column_stride));
        turned = std::max(turned, floats(as.columns, as.row_stride));
        squared = std::max(squared, floats(as.rows, as.row_stride));
        widest = std::max(widest, static_cast<std::size_t>(as.column_stride));
    }
    direction_ = Floats(own);
    x_ = Floats(largest);
    next_ = Floats(largest);
    across_ = Floats(turned);
    square_ = Floats(squared);
    fourth_ = Floats(squared);
    zeros_ = Floats(widest);
}

void Muon::orthogonalise(const Matrix& matrix) {
    const Wide as = wide(matrix, level_.width);
    const bool tall = matrix.rows > matrix.columns;
    const auto size = static_cast<std::ptrdiff_t>(floats(as.rows, as.column_stride));
    float* const x = x_.data();
    // Padding must be zero. Another matrix may have left numbers there.
    std::fill_n(x, size, 0.0F);
    std::fill_n(across_.data(), floats(as.columns, as.row_stride), 0.0F);
    if (tall)
        level_.transpose(direction_.data(), matrix.stride, matrix.rows, matrix.columns, x, as.column_stride);
    else
        std::copy_n(direction_.data(), size, x);
    const auto shrink = static_cast<float>(1.0 / (std::sqrt(level_.squares(x, static_cast<std::size_t>(size))) + 1e-7));
    for (std::ptrdiff_t i = 0; i < size; ++i) x[i] *= shrink;

    float* const square = square_.data();
    float* const fourth = fourth_.data();
    const std::ptrdiff_t count = static_cast<std::ptrdiff_t>(floats(as.rows, as.row_stride));
    for (int number = 0; number < kNewtonSchulzSteps; ++number) {
        level_.transpose(x_.data(), as.column_stride, as.rows, as.columns, across_.data(), as.row_stride);
        level_.product({x_.data(), as.column_stride, 1, across_.data(), as.row_stride, zeros_.data(), 0, square, as.row_stride,
                        as.rows, as.columns, as.row_stride});
        level_.product({square, as.row_stride, 1, square, as.row_stride, zeros_.data(), 0, fourth, as.row_stride, as.rows, as.rows,
                        as.row_stride});
        for (std::ptrdiff_t i = 0; i < count; ++i) fourth[i] = kCubic * square[i] + kQuintic * fourth[i];
        for (std::ptrdiff_t r = 0; r < as.rows; ++r) fourth[r * as.row_stride + r] += kLinear;
        level_.product({fourth, as.row_stride, 1, x_.data(), as.column_stride, zeros_.data(), 0, next_.data(), as.column_stride,
                        as.rows, as.rows, as.column_stride});
        std::swap(x_, next_);
    }
    if (tall)
        level_.transpose(x_.data(), as.column_stride, as.rows, as.columns, direction_.data(), matrix.stride);
    else
        std::copy_n(x_.data(), size, direction_.data());
}

void Muon::step(std::size_t matrix, const Optimizer& optimizer, const Moments& vector, double lr, float scale) {
    const Matrix& of = matrices_[matrix];
    float* const parameter = vector.parameter + of.offset;
    float* const sum = vector.sum + of.offset;
    const float* const gradient = vector.gradient + of.offset;
    float* const direction = direction_.data();
    const auto momentum = static_cast<float>(optimizer.momentum);
    const std::size_t count = of.size();
    for (std::size_t i = 0; i < count; ++i) {
        const float scaled = gradient[i] * scale;
        sum[i] = momentum * sum[i] + scaled;
        direction[i] = momentum * sum[i] + scaled;
    }
    orthogonalise(of);
    const auto kept = static_cast<float>(1.0 - lr * optimizer.weight_decay);
    const auto length = static_cast<float>(0.2 * std::sqrt(std::max(of.rows, of.columns)) * lr);
    for (std::size_t i = 0; i < count; ++i) parameter[i] = parameter[i] * kept - length * direction[i];
}

void Muon::step_others(const Optimizer& optimizer, const Moments& vector, std::size_t first, std::size_t count, std::int64_t step,
                       double lr, float scale) {
    const std::size_t end = first + count;
    const auto piece = [&](std::size_t from, std::size_t to, bool in_matrix) {
        from = std::max(from, first);
        to = std::min(to, end);
        if (from >= to) return;
        Moments at = vector.part(from, to - from);
        if (in_matrix) at.parameter = direction_.data();
        descend(optimizer, level_, at, step, lr, scale);
    };
    std::size_t done = 0;
    for (const Matrix& matrix : matrices_) {
        piece(done, matrix.offset, false);
        done = matrix.offset + matrix.size();
        piece(matrix.offset, done, true);
    }
    piece(done, end, false);
}

}  // namespace penstock::kernels
