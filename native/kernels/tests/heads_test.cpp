// Heads of policies without a value, on one linear layer, against plain loops in double.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "numbers.hpp"
#include "policy.hpp"

using namespace penstock::kernels;
using penstock::test::check;
using penstock::test::Numbers;

namespace {

constexpr std::int32_t kFeatures = 5;

// What the layer gives for one row.
std::vector<double> plain_outputs(const std::vector<float>& flat, const float* x, std::size_t outputs) {
    std::vector<double> y(outputs);
    for (std::size_t o = 0; o < outputs; ++o) {
        y[o] = flat[kFeatures * outputs + o];
        for (std::size_t i = 0; i < kFeatures; ++i) y[o] += static_cast<double>(x[i]) * flat[i * outputs + o];
    }
    return y;
}

std::vector<double> plain_values(const Head& head, std::vector<double> y) {
    const auto size = static_cast<std::size_t>(head.size), atoms = static_cast<std::size_t>(head.atoms);
    if (head.dueling) {
        std::vector<double> q(size * atoms);
        for (std::size_t i = 0; i < atoms; ++i) {
            double mean = 0.0;
            for (std::size_t k = 0; k < size; ++k) mean += y[(1 + k) * atoms + i] / head.size;
            for (std::size_t k = 0; k < size; ++k) q[k * atoms + i] = y[i] + y[(1 + k) * atoms + i] - mean;
        }
        y = q;
    }
    if (atoms == 1) return y;
    std::vector<double> q(size);
    for (std::size_t k = 0; k < size; ++k) {
        double weight = 0.0;
        for (std::size_t i = 0; i < atoms; ++i) {
            const double probability = std::exp(y[k * atoms + i]);
            weight += probability;
            q[k] += probability * (head.low + (head.high - head.low) * static_cast<double>(i) / (head.atoms - 1));
        }
        q[k] /= weight;
    }
    return q;
}

}  // namespace

// Arrays end exactly where their numbers do, so that the address sanitizer sees any step too far.
void heads_agree(const Level& level, const Head& head, std::int64_t rows) {
    const auto n = static_cast<std::size_t>(rows), outputs = static_cast<std::size_t>(head.outputs());
    const auto size = static_cast<std::size_t>(head.size), draws = static_cast<std::size_t>(head.noise_size());
    Numbers numbers;
    const std::vector<float> flat = numbers.many((kFeatures + 1) * outputs), obs = numbers.many(n * kFeatures);
    std::vector<float> noise = numbers.many(n * draws);
    const std::vector<float> explore(n, 0.5F);
    for (float& number : noise) number = head.gives_q() ? std::min(std::abs(number), 0.99F) : number;
    Policy policy({{{false, kFeatures, 0}}, {{kFeatures, head.outputs(), Elementwise::none}}, {}, head, false, false}, level);
    policy.load(flat.data(), nullptr, {});
    std::vector<float> action(n * size), q(n * size);
    std::vector<std::int64_t> chosen(n);
    const auto rows_of = [](const void* data, std::size_t bytes) {
        return Rows{static_cast<std::byte*>(const_cast<void*>(data)), static_cast<std::ptrdiff_t>(bytes), Dtype::f32};
    };
    const Rows field = rows_of(obs.data(), kFeatures * sizeof(float));
    Outputs out;
    out.action = head.discrete() ? rows_of(chosen.data(), sizeof(std::int64_t)) : rows_of(action.data(), size * sizeof(float));
    if (head.gives_q()) out.q = rows_of(q.data(), size * sizeof(float));
    policy.act(&field, noise.data(), explore.data(), out, rows);
    const std::string name = std::string(level.name) + " head " + std::to_string(static_cast<int>(head.kind)) + " of " +
                             std::to_string(head.size) + " rows " + std::to_string(rows);
    for (std::size_t r = 0; r < n; ++r) {
        const std::vector<double> y = plain_outputs(flat, &obs[r * kFeatures], outputs);
        if (head.gives_q()) {
            const std::vector<double> wanted = plain_values(head, y);
            const double best = *std::max_element(wanted.begin(), wanted.end());
            for (std::size_t k = 0; k < size; ++k) check(std::abs(wanted[k] - q[r * size + k]) < 1e-4, "q " + name);
            if (noise[2 * r] < 0.5F)
                check(chosen[r] == static_cast<std::int64_t>(noise[2 * r + 1] * static_cast<float>(head.size)), "any " + name);
            else
                check(wanted[static_cast<std::size_t>(chosen[r])] > best - 1e-4, "best " + name);
            continue;
        }
        for (std::size_t k = 0; k < size; ++k) {
            const double z = 0.5 * noise[r * draws + k];
            const double wanted = head.kind == HeadKind::deterministic
                                      ? std::clamp(std::tanh(y[k]) + z, -1.0, 1.0)
                                      : std::tanh(y[k] + z * std::exp(std::clamp(y[size + k], head.low, head.high)));
            check(std::abs(wanted - action[r * size + k]) < 1e-4, "action " + name);
        }
    }
}
