// A recurrent layer over some steps, against plain loops in double.

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "numbers.hpp"
#include "recurrent.hpp"

using namespace penstock::kernels;
using penstock::test::check;
using penstock::test::Numbers;

namespace {

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// A layer's arrays in its flat vector, and the state of one lane.
struct Plain {
    LayerShape shape;
    const std::vector<float>& flat;
    std::vector<double> h, c;

    std::size_t size() const { return static_cast<std::size_t>(shape.outputs); }

    // The sum of one gate of cell u over rows of weights that begin at `at`, without bias.
    double sum(std::size_t at, std::size_t gates, std::size_t gate, std::size_t u, const double* x, std::size_t count) const {
        double total = 0.0;
        for (std::size_t k = 0; k < count; ++k) total += x[k] * flat[at + (k * gates + gate) * size() + u];
        return total;
    }

    void step(const std::vector<double>& x) {
        const std::size_t gates = shape.kind == LayerKind::lstm ? 4 : 3, n = size();
        const std::size_t recurrent = x.size() * gates * n, bias = recurrent + n * gates * n;
        std::vector<double> next(n);
        for (std::size_t u = 0; u < n; ++u) {
            const auto of_x = [&](std::size_t gate) { return sum(0, gates, gate, u, x.data(), x.size()) + flat[bias + gate * n + u]; };
            const auto of_h = [&](std::size_t gate) { return sum(recurrent, gates, gate, u, h.data(), n); };
            if (gates == 4) {
                const auto gate = [&](std::size_t number) { return of_x(number) + of_h(number); };
                c[u] = sigmoid(gate(1)) * c[u] + sigmoid(gate(0)) * std::tanh(gate(2));
                next[u] = sigmoid(gate(3)) * std::tanh(c[u]);
            } else {
                const auto own = [&](std::size_t gate) { return of_h(gate) + flat[bias + (3 + gate) * n + u]; };
                const double r = sigmoid(of_x(0) + own(0)), z = sigmoid(of_x(1) + own(1));
                next[u] = (1.0 - z) * std::tanh(of_x(2) + r * own(2)) + z * h[u];
            }
        }
        h = next;
    }
};

}  // namespace

// Arrays end exactly where their numbers do, so that the address sanitizer sees any step too far.
void cells_agree(const Level& level, const LayerShape& shape, std::int32_t rows) {
    const auto inputs = static_cast<std::size_t>(shape.inputs), size = static_cast<std::size_t>(shape.outputs);
    const auto n = static_cast<std::size_t>(rows);
    Numbers numbers;
    const std::vector<float> flat = numbers.many(static_cast<std::size_t>(shape.parameters()));
    Recurrent layer(shape, level);
    layer.load(flat.data());
    std::vector<float> h(n * size, 9.0F), c(n * size, 9.0F);
    const std::size_t stride = static_cast<std::size_t>(layer.padded());
    std::vector<float> out(n * stride);
    std::vector<Plain> lanes(n, {shape, flat, std::vector<double>(size), std::vector<double>(size)});
    const auto rows_of = [](void* data, std::size_t bytes, Dtype dtype) {
        return Rows{static_cast<std::byte*>(data), static_cast<std::ptrdiff_t>(bytes), dtype};
    };
    const Rows arrays[] = {rows_of(h.data(), size * sizeof(float), Dtype::f32), rows_of(c.data(), size * sizeof(float), Dtype::f32)};
    const auto first = std::make_unique<bool[]>(n);
    for (int t = 0; t < 3; ++t) {
        const std::vector<float> x = numbers.many(n * inputs);
        // All lanes begin with the first step, every third one again with the last.
        for (std::size_t r = 0; r < n; ++r) first[r] = t == 0 || (t == 2 && r % 3 == 0);
        const Carry carry{rows_of(first.get(), 1, Dtype::boolean), arrays, arrays};
        layer.run(level, x.data(), shape.inputs, carry, 0, rows, out.data(), layer.padded());
        for (std::size_t r = 0; r < n; ++r) {
            Plain& lane = lanes[r];
            if (first[r]) lane.h = lane.c = std::vector<double>(size);
            const auto from = x.begin() + static_cast<std::ptrdiff_t>(r * inputs);
            lane.step({from, from + shape.inputs});
            const std::string name = std::string(level.name) + " " + std::to_string(shape.inputs) + " " +
                                     std::to_string(shape.outputs) + " rows " + std::to_string(rows);
            for (std::size_t u = 0; u < size; ++u) {
                check(std::abs(out[r * stride + u] - lane.h[u]) < 1e-4, "h " + name);
                check(out[r * stride + u] == h[r * size + u], "carried h " + name);
                if (shape.kind == LayerKind::lstm) check(std::abs(c[r * size + u] - lane.c[u]) < 1e-4, "c " + name);
            }
        }
    }
}
