#include "sequence.hpp"

#include <algorithm>
#include <cstring>

#include "layers.hpp"

namespace penstock::kernels {

namespace {

// Columns of a panel: one strip of the product's tiles at every level, and a multiple of every level's width.
constexpr std::int32_t kPanel = 64;

std::size_t floats(std::int64_t rows, std::int64_t columns) { return static_cast<std::size_t>(rows * columns); }

// The second factor of products, copied once into panels of columns that are contiguous: a panel stays in the first
// cache while all lanes go by it. Rows of a wide matrix would fall into few sets of that cache.
class Panels {
public:
    Panels(std::int32_t depth, std::int32_t columns, const Level& level)
        : level_(level), depth_(depth), columns_(columns), values_(floats(depth, columns)) {}

    std::int32_t width(std::int32_t column) const { return std::min(kPanel, columns_ - column / kPanel * kPanel); }
    float* at(std::int32_t k, std::int32_t column) {
        const std::ptrdiff_t panel = column / kPanel * kPanel;
        return values_.data() + panel * depth_ + std::ptrdiff_t{k} * width(column) + column % kPanel;
    }
    // c = init + a times this, row by row.
    void product(const float* a, std::ptrdiff_t a_row, const float* init, std::ptrdiff_t init_stride, float* c,
                 std::ptrdiff_t c_stride, std::int32_t rows) const {
        for (std::int32_t column = 0; column < columns_; column += kPanel) {
            const float* panel = values_.data() + std::ptrdiff_t{column} * depth_;
            const std::int32_t wide = width(column);
            level_.product({a, a_row, 1, panel, wide, init + column, init_stride, c + column, c_stride, rows, depth_, wide});
        }
    }

private:
    const Level& level_;
    std::int32_t depth_, columns_;
    Floats values_;
};

// What the cells differ in for everything around their steps.
struct Cell {
    std::int32_t size;
    std::int32_t padded;
    std::int32_t gates;

    Cell(std::int32_t units, std::int32_t parts, const Level& level)
        : size(units), padded(round_up(units, level.width)), gates(parts) {}
    std::int32_t columns() const { return gates * padded; }
};

// U [size, gates * size] as [size, gates * padded].
Panels packed(const Cell& cell, const float* recurrent, const Level& level) {
    Panels panels(cell.size, cell.columns(), level);
    for (std::int32_t k = 0; k < cell.size; ++k)
        for (std::int32_t gate = 0; gate < cell.gates; ++gate, recurrent += cell.size)
            for (std::int32_t u = 0; u < cell.size; u += level.width)
                std::memcpy(panels.at(k, gate * cell.padded + u), recurrent + u,
                            floats(1, std::min(level.width, cell.size - u)) * sizeof(float));
    return panels;
}

// U transposed, [gates * padded, padded].
Panels packed_transposed(const Cell& cell, const float* recurrent, const Level& level) {
    Panels panels(cell.columns(), cell.padded, level);
    const std::ptrdiff_t stride = std::ptrdiff_t{cell.gates} * cell.size;
    for (std::int32_t gate = 0; gate < cell.gates; ++gate)
        for (std::int32_t unit = 0; unit < cell.size; unit += kPanel)
            level.transpose(recurrent + unit * stride + std::ptrdiff_t{gate} * cell.size, stride,
                            std::min(kPanel, cell.size - unit), cell.size, panels.at(gate * cell.padded, unit),
                            panels.width(unit));
    return panels;
}

// Rows of `size` numbers from one stride to another.
void copy_rows(LaneRows<const float> from, LaneRows<float> to, std::int32_t lanes, std::int32_t size) {
    for (std::int32_t lane = 0; lane < lanes; ++lane)
        std::memcpy(to.row(lane), from.row(lane), floats(1, size) * sizeof(float));
}

// The lanes that go through all steps together: their scratch stays in the second cache.
struct Block {
    const Sequence& over;
    const Cell& cell;
    std::int32_t from;
    std::int32_t lanes;

    CellSize of() const { return {lanes, cell.size, cell.padded}; }
    // Where these lanes begin in a contiguous array [T, lanes, width].
    std::ptrdiff_t offset(std::int64_t t, std::int32_t width) const { return (t * over.lanes + from) * width; }
    // The lanes' rows of a contiguous array [lanes, size], to and from scratch.
    void read(const float* state, float* scratch) const {
        copy_rows({state + offset(0, cell.size), cell.size}, {scratch, cell.padded}, lanes, cell.size);
    }
    void write(const float* scratch, float* state) const {
        copy_rows({scratch, cell.padded}, {state + offset(0, cell.size), cell.size}, lanes, cell.size);
    }
    // Zeros in scratch [lanes, padded] for the lanes whose episode begins with row t.
    void cut(std::int64_t t, float* scratch) const {
        const LaneRows<const bool> first = over.first.at(t, from);
        for (std::int32_t lane = 0; lane < lanes; ++lane)
            if (*first.row(lane))
                std::memset(scratch + std::ptrdiff_t{lane} * cell.padded, 0, floats(1, cell.padded) * sizeof(float));
    }
    // The state before row t, into scratch: that behind row t - 1, or the initial one, or zeros.
    void before(std::int64_t t, Steps<const float> states, const float* initial, float* scratch) const {
        if (t == 0)
            read(initial, scratch);
        else
            copy_rows(states.at(t - 1, from), {scratch, cell.padded}, lanes, cell.size);
        cut(t, scratch);
    }
};

template <typename Use>
void each_block(const Sequence& over, const Cell& cell, Use&& use) {
    for (std::int32_t from = 0; from < over.lanes; from += kRowsAtOnce)
        use(Block{over, cell, from, std::min(kRowsAtOnce, over.lanes - from)});
}

// Sums the gradient of U, and of the bias, over rows. Rows are kept until there are enough for one product.
class WeightGradient {
public:
    WeightGradient(const Cell& cell, const Level& level)
        : cell_(cell), level_(level), before_(floats(kRows, cell.padded)), d_(floats(kRows, cell.columns())),
          sums_(floats(cell.size, cell.columns())), bias_(floats(1, cell.columns())) {}

    // Room for the next rows: h before the step [rows, padded], and the gradient behind U [rows, columns].
    struct Rows {
        float* before;
        float* d;
    };
    Rows next(std::int32_t rows) {
        if (used_ + rows > kRows) add();
        const std::int32_t at = used_;
        used_ += rows;
        return {before_.data() + std::ptrdiff_t{at} * cell_.padded, d_.data() + std::ptrdiff_t{at} * cell_.columns()};
    }
    // The sums over all rows: [size, gates * size], and [gates * size] if wanted.
    void write(float* recurrent, float* bias) {
        add();
        const std::ptrdiff_t columns = cell_.columns(), width = std::ptrdiff_t{cell_.gates} * cell_.size;
        for (std::int32_t k = 0; k < cell_.size; ++k) write_row(sums_.data() + k * columns, recurrent + k * width);
        if (bias != nullptr) write_row(bias_.data(), bias);
    }

private:
    static constexpr std::int32_t kRows = 2 * kRowsAtOnce;

    void add() {
        const std::int32_t columns = cell_.columns();
        level_.product({before_.data(), 1, cell_.padded, d_.data(), columns, sums_.data(), columns, sums_.data(), columns,
                        cell_.size, used_, columns});
        level_.add_rows(d_.data(), columns, used_, columns, bias_.data());
        used_ = 0;
    }
    void write_row(const float* from, float* to) const {
        copy_rows({from, cell_.padded}, {to, cell_.size}, cell_.gates, cell_.size);
    }

    const Cell& cell_;
    const Level& level_;
    Floats before_, d_, sums_, bias_;
    std::int32_t used_ = 0;
};

}  // namespace

void forward(const LstmForward& run, const Level& level) {
    const Cell cell(run.over.size, 4, level);
    const Panels weights = packed(cell, run.recurrent, level);
    const Floats zeros(floats(1, cell.columns()));
    each_block(run.over, cell, [&](const Block& block) {
        Floats h(floats(block.lanes, cell.padded)), c(floats(block.lanes, cell.padded));
        Floats own(floats(block.lanes, cell.columns()));
        block.read(run.h, h.data());
        block.read(run.c, c.data());
        for (std::int64_t t = 0; t < run.over.steps; ++t) {
            block.cut(t, h.data());
            block.cut(t, c.data());
            weights.product(h.data(), cell.padded, zeros.data(), 0, own.data(), cell.columns(), block.lanes);
            level.lstm_step({block.of(), own.data(), run.x.at(t, block.from), h.data(), c.data(),
                             run.output.at(t, block.from), run.gates + block.offset(t, 4 * cell.size),
                             run.cells + block.offset(t, cell.size)});
        }
        block.write(h.data(), run.last_h);
        block.write(c.data(), run.last_c);
    });
}

void backward(const LstmBackward& run, const Level& level) {
    const Cell cell(run.over.size, 4, level);
    const Panels transposed = packed_transposed(cell, run.recurrent, level);
    const Steps<const float> cells{run.cells, std::ptrdiff_t{run.over.lanes} * cell.size, cell.size};
    const Floats zeros(floats(1, cell.padded));
    WeightGradient sums(cell, level);
    each_block(run.over, cell, [&](const Block& block) {
        Floats d_h(floats(block.lanes, cell.padded)), d_c(floats(block.lanes, cell.padded));
        Floats before(floats(block.lanes, cell.padded));
        block.read(run.d_last_h, d_h.data());
        block.read(run.d_last_c, d_c.data());
        for (std::int64_t t = run.over.steps; t-- > 0;) {
            const WeightGradient::Rows rows = sums.next(block.lanes);
            block.before(t, run.output, run.h, rows.before);
            block.before(t, cells, run.c, before.data());
            level.lstm_gradient({block.of(), run.gates + block.offset(t, 4 * cell.size),
                                 run.cells + block.offset(t, cell.size), before.data(),
                                 run.d_output.at(t, block.from), d_h.data(), d_c.data(),
                                 run.d_x.at(t, block.from), rows.d});
            transposed.product(rows.d, cell.columns(), zeros.data(), 0, d_h.data(), cell.padded, block.lanes);
            block.cut(t, d_h.data());
            block.cut(t, d_c.data());
        }
        block.write(d_h.data(), run.d_h);
        block.write(d_c.data(), run.d_c);
    });
    sums.write(run.d_recurrent, nullptr);
}

void forward(const GruForward& run, const Level& level) {
    const Cell cell(run.over.size, 3, level);
    const Panels weights = packed(cell, run.recurrent, level);
    Floats bias(floats(1, cell.columns()));
    copy_rows({run.bias, cell.size}, {bias.data(), cell.padded}, cell.gates, cell.size);
    each_block(run.over, cell, [&](const Block& block) {
        Floats h(floats(block.lanes, cell.padded)), own(floats(block.lanes, cell.columns()));
        block.read(run.h, h.data());
        for (std::int64_t t = 0; t < run.over.steps; ++t) {
            block.cut(t, h.data());
            weights.product(h.data(), cell.padded, bias.data(), 0, own.data(), cell.columns(), block.lanes);
            level.gru_step({block.of(), own.data(), run.x.at(t, block.from), h.data(), run.output.at(t, block.from),
                            run.gates + block.offset(t, 4 * cell.size)});
        }
        block.write(h.data(), run.last_h);
    });
}

void backward(const GruBackward& run, const Level& level) {
    const Cell cell(run.over.size, 3, level);
    const Panels transposed = packed_transposed(cell, run.recurrent, level);
    WeightGradient sums(cell, level);
    each_block(run.over, cell, [&](const Block& block) {
        Floats d_h(floats(block.lanes, cell.padded));
        block.read(run.d_last_h, d_h.data());
        for (std::int64_t t = run.over.steps; t-- > 0;) {
            const WeightGradient::Rows rows = sums.next(block.lanes);
            block.before(t, run.output, run.h, rows.before);
            level.gru_gradient({block.of(), run.gates + block.offset(t, 4 * cell.size), rows.before,
                                run.d_output.at(t, block.from), d_h.data(), run.d_x.at(t, block.from), rows.d});
            transposed.product(rows.d, cell.columns(), d_h.data(), cell.padded, d_h.data(), cell.padded, block.lanes);
            block.cut(t, d_h.data());
        }
        block.write(d_h.data(), run.d_h);
    });
    sums.write(run.d_recurrent, run.d_bias);
}

}  // namespace penstock::kernels
