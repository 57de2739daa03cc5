// Heads on one linear layer: those of policies without a value against plain loops in double, and action masks.

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

// The layer's outputs for one row.
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

// Arrays end exactly behind their last number, so that the address sanitizer finds each access behind it.
void heads_agree(const Level& level, const Head& head, std::int64_t rows) {
    const auto n = static_cast<std::size_t>(rows), outputs = static_cast<std::size_t>(head.outputs());
    const auto size = static_cast<std::size_t>(head.size), noises = static_cast<std::size_t>(head.noise_size());
    Numbers numbers;
    const std::vector<float> flat = numbers.many((kFeatures + 1) * outputs), obs = numbers.many(n * kFeatures);
    std::vector<float> noise = numbers.many(n * noises);
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
    policy.act({&field, noise.data(), explore.data()}, out, rows);
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
            const double z = 0.5 * noise[r * noises + k];
            const double wanted = head.kind == HeadKind::deterministic
                                      ? std::clamp(std::tanh(y[k]) + z, -1.0, 1.0)
                                      : std::tanh(y[k] + z * std::exp(std::clamp(y[size + k], head.low, head.high)));
            check(std::abs(wanted - action[r * size + k]) < 1e-4, "action " + name);
        }
    }
}

// Every other action of a row is allowed, beginning with the row's number. Arrays end where their numbers do, as above.
void masks_forbid(const Level& level, const Head& head, std::int64_t rows) {
    const auto n = static_cast<std::size_t>(rows), size = static_cast<std::size_t>(head.size);
    const auto noises = static_cast<std::size_t>(head.noise_size());
    const std::int32_t outputs = head.outputs() + (head.gives_value() ? 1 : 0);
    Numbers numbers;
    const std::vector<float> flat = numbers.many((kFeatures + 1) * static_cast<std::size_t>(outputs));
    const std::vector<float> obs = numbers.many(n * kFeatures), noise = numbers.many(n * noises), explore(n, 0.5F);
    Policy policy({{{false, kFeatures, 0}}, {{kFeatures, outputs, Elementwise::none}}, {}, head, false, false, true}, level);
    policy.load(flat.data(), nullptr, {});
    std::vector<std::uint8_t> mask(n * size);
    for (std::size_t at = 0; at < mask.size(); ++at) mask[at] = at / size % 2 == at % size % 2 ? 1 : 0;
    std::vector<std::int64_t> chosen(n, -1);
    std::vector<float> log_prob(n);
    const auto rows_of = [](const void* data, std::size_t bytes, Dtype dtype) {
        return Rows{static_cast<std::byte*>(const_cast<void*>(data)), static_cast<std::ptrdiff_t>(bytes), dtype};
    };
    const Rows field = rows_of(obs.data(), kFeatures * sizeof(float), Dtype::f32);
    Outputs out;
    out.action = rows_of(chosen.data(), sizeof(std::int64_t), Dtype::i64);
    if (head.gives_value()) out.log_prob = rows_of(log_prob.data(), sizeof(float), Dtype::f32);
    policy.act({&field, noise.data(), explore.data(), {}, rows_of(mask.data(), size, Dtype::u8)}, out, rows);
    for (std::size_t r = 0; r < n; ++r) {
        const std::string name = std::string(level.name) + " mask of " + std::to_string(head.size) + " row " + std::to_string(r);
        check(mask[r * size + static_cast<std::size_t>(chosen[r])] == 1, "allowed " + name);
        if (!head.gives_value()) continue;
        const std::vector<double> y = plain_outputs(flat, &obs[r * kFeatures], static_cast<std::size_t>(outputs));
        double total = 0.0;
        for (std::size_t k = 0; k < size; ++k) total += mask[r * size + k] == 1 ? std::exp(y[k]) : 0.0;
        check(std::abs(log_prob[r] - (y[static_cast<std::size_t>(chosen[r])] - std::log(total))) < 1e-4, "log_prob " + name);
    }
}
