// Muon's step of the weight matrices between hidden layers. Its mathematics and its source: penstock.ops.optimizers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "layers.hpp"
#include "optimizer.hpp"
#include "penstock/kernels/level.hpp"

namespace penstock::kernels {

// A weight matrix in packed vectors: [rows, stride] from `offset` on, zero beyond `columns`. It may be the transpose of
// what a layer multiplies with. Muon's step is the same for both.
struct Matrix {
    std::size_t offset;
    std::int32_t rows, columns, stride;
    std::size_t size() const { return static_cast<std::size_t>(rows) * static_cast<std::size_t>(stride); }
};

// The weight of a layer, which lies at `offset`.
Matrix matrix_of(const Linear& linear, std::size_t offset);

// Steps matrices of one packed vector. Holds only memory to compute in, so each thread needs its own.
class Muon {
public:
    // `matrices` in the order of their offsets, one behind the other.
    Muon(std::vector<Matrix> matrices, const Level& level);

    std::size_t matrices() const { return matrices_.size(); }
    // The step of one matrix. `vector`: the whole packed vector and its moments.
    void step(std::size_t matrix, const Optimizer& optimizer, const Moments& vector, double lr, float scale);
    // The step of all other numbers among `count` numbers from `first` on, which is that of AdamW. Adam's moments of
    // matrices move as well: then a state is the same on every backend.
    void step_others(const Optimizer& optimizer, const Moments& vector, std::size_t first, std::size_t count, std::int64_t step,
                     double lr, float scale);

private:
    // Makes all singular values of `direction_` about 1.
    void orthogonalise(const Matrix& matrix);

    std::vector<Matrix> matrices_;
    const Level& level_;
    Floats direction_, x_, next_, across_, square_, fourth_, zeros_;
};

}  // namespace penstock::kernels
