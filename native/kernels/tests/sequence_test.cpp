// LSTM and GRU over a sequence against plain loops in double: values, and gradients along one direction.

#include "sequence.hpp"

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "numbers.hpp"

using namespace penstock::kernels;
using penstock::test::check;
using penstock::test::Numbers;

namespace {

using Doubles = std::vector<double>;

struct Size {
    std::size_t steps, lanes, size;
};

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// Every input of a cell, in one order for values, directions and gradients. `c` is an LSTM's, `bias` a GRU's.
template <typename T>
struct Inputs {
    std::vector<T> x, recurrent, bias, h, c;
};

// Outputs [T, lanes, size], then h and c behind the last row.
Doubles plain(bool lstm, const Size& of, const Inputs<double>& in, const bool* first) {
    const std::size_t n = of.size, gates = lstm ? 4 : 3;
    Doubles h = in.h, c = in.c, found;
    for (std::size_t t = 0; t < of.steps; ++t)
        for (std::size_t lane = 0; lane < of.lanes; ++lane) {
            double* state = &h[lane * n];
            double* cell = &c[lane * n];
            if (first[t * of.lanes + lane])
                for (std::size_t u = 0; u < n; ++u) state[u] = cell[u] = 0.0;
            const double* x = &in.x[(t * of.lanes + lane) * gates * n];
            Doubles own(gates * n);
            for (std::size_t g = 0; g < gates * n; ++g) {
                own[g] = in.bias[g];
                for (std::size_t k = 0; k < n; ++k) own[g] += state[k] * in.recurrent[k * gates * n + g];
            }
            for (std::size_t u = 0; u < n; ++u) {
                const auto sum = [&](std::size_t gate) { return own[gate * n + u] + x[gate * n + u]; };
                if (lstm) {
                    cell[u] = sigmoid(sum(1)) * cell[u] + sigmoid(sum(0)) * std::tanh(sum(2));
                    state[u] = sigmoid(sum(3)) * std::tanh(cell[u]);
                } else {
                    const double new_part = std::tanh(x[2 * n + u] + sigmoid(sum(0)) * own[2 * n + u]), z = sigmoid(sum(1));
                    state[u] = (1.0 - z) * new_part + z * state[u];
                }
                found.push_back(state[u]);
            }
        }
    found.insert(found.end(), h.begin(), h.end());
    if (lstm) found.insert(found.end(), c.begin(), c.end());
    return found;
}

double dot(const Doubles& a, const std::vector<float>& b) {
    double total = 0.0;
    for (std::size_t i = 0; i < b.size(); ++i) total += a[i] * static_cast<double>(b[i]);
    return total;
}

Doubles moved(const std::vector<float>& from, const std::vector<float>& direction, double by) {
    Doubles values(from.size());
    for (std::size_t i = 0; i < from.size(); ++i)
        values[i] = static_cast<double>(from[i]) + by * static_cast<double>(direction[i]);
    return values;
}

Inputs<double> moved(const Inputs<float>& from, const Inputs<float>& direction, double by) {
    return {moved(from.x, direction.x, by), moved(from.recurrent, direction.recurrent, by),
            moved(from.bias, direction.bias, by), moved(from.h, direction.h, by), moved(from.c, direction.c, by)};
}

Doubles wide(const std::vector<float>& values) { return {values.begin(), values.end()}; }

std::vector<float> part(const std::vector<float>& of, std::size_t from, std::size_t count) {
    const auto begin = of.begin() + static_cast<std::ptrdiff_t>(from);
    return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace

// Arrays end exactly where their numbers do, so that the address sanitizer sees any step too far.
void sequences_agree(const Level& level, bool lstm, std::size_t steps, std::size_t lanes, std::size_t size) {
    const Size of{steps, lanes, size};
    const std::size_t gates = lstm ? 4 : 3, rows = steps * lanes, state = lanes * size;
    Numbers numbers;
    const auto random = [&] {
        return Inputs<float>{numbers.many(rows * gates * size), numbers.many(size * gates * size),
                             lstm ? std::vector<float>(gates * size) : numbers.many(gates * size), numbers.many(state),
                             numbers.many(state)};
    };
    const Inputs<float> in = random(), direction = random();
    const std::vector<float> weight = numbers.many(rows * size + 2 * state);
    const std::vector<float> d_output = part(weight, 0, rows * size), d_last_h = part(weight, rows * size, state),
                             d_last_c = part(weight, rows * size + state, state);
    const auto first = std::make_unique<bool[]>(rows);
    for (std::size_t row = 0; row < rows; ++row) first[row] = numbers.next() > 0.7F;
    std::vector<float> output(rows * size), last_h(state), last_c(state), kept(rows * 4 * size), cells(rows * size);
    Inputs<float> d{std::vector<float>(in.x.size()), std::vector<float>(in.recurrent.size()),
                    std::vector<float>(in.bias.size()), std::vector<float>(state), std::vector<float>(state)};
    const auto over = [&](auto* data, std::size_t width) {
        return Steps<std::remove_pointer_t<decltype(data)>>{data, static_cast<std::ptrdiff_t>(lanes * width),
                                                           static_cast<std::ptrdiff_t>(width)};
    };
    const Sequence sequence{static_cast<std::int64_t>(steps), static_cast<std::int32_t>(lanes),
                            static_cast<std::int32_t>(size), over(static_cast<const bool*>(first.get()), 1)};
    const Steps<const float> x = over(in.x.data(), gates * size), d_outputs = over(d_output.data(), size),
                             outputs = over(static_cast<const float*>(output.data()), size);
    if (lstm) {
        forward(LstmForward{sequence, x, in.recurrent.data(), in.h.data(), in.c.data(), over(output.data(), size),
                            last_h.data(), last_c.data(), kept.data(), cells.data()},
                level);
        backward(LstmBackward{sequence, d_outputs, d_last_h.data(), d_last_c.data(), in.recurrent.data(), in.h.data(),
                              in.c.data(), outputs, kept.data(), cells.data(), over(d.x.data(), gates * size),
                              d.recurrent.data(), d.h.data(), d.c.data()},
                 level);
    } else {
        forward(GruForward{sequence, x, in.recurrent.data(), in.bias.data(), in.h.data(), over(output.data(), size),
                           last_h.data(), kept.data()},
                level);
        backward(GruBackward{sequence, d_outputs, d_last_h.data(), in.recurrent.data(), in.h.data(), outputs, kept.data(),
                             over(d.x.data(), gates * size), d.recurrent.data(), d.bias.data(), d.h.data()},
                 level);
    }
    const std::string name = std::string(level.name) + (lstm ? " lstm " : " gru ") + std::to_string(steps) + " x " +
                             std::to_string(lanes) + " x " + std::to_string(size);
    std::vector<float> found = output;
    found.insert(found.end(), last_h.begin(), last_h.end());
    if (lstm) found.insert(found.end(), last_c.begin(), last_c.end());
    const Doubles wanted = plain(lstm, of, moved(in, direction, 0.0), first.get());
    for (std::size_t i = 0; i < wanted.size(); ++i)
        check(std::abs(wanted[i] - static_cast<double>(found[i])) < 1e-5, "values of " + name);
    // The slope along the direction, as a difference in double, and from the gradient.
    const std::vector<float> weights = part(weight, 0, wanted.size());
    constexpr double step = 1e-5;
    Inputs<float> along = direction;
    if (lstm) along.bias = in.bias;  // zeros
    const auto loss = [&](double by) { return dot(plain(lstm, of, moved(in, along, by), first.get()), weights); };
    const double slope = (loss(step) - loss(-step)) / (2.0 * step);
    const double given = dot(wide(d.x), along.x) + dot(wide(d.recurrent), along.recurrent) + dot(wide(d.bias), along.bias) +
                         dot(wide(d.h), along.h) + dot(wide(d.c), along.c);
    const double scale = std::sqrt(static_cast<double>(d.x.size() + d.recurrent.size()));
    check(std::abs(slope - given) < 1e-4 * scale, "gradient of " + name);
}
