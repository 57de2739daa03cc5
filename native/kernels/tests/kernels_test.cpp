// The forward pass against plain loops at every level and many shapes, the noise against numbers that are the same on
// every machine, advantages, and the update. Prints what failed and exits with 1.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "gae.hpp"
#include "penstock/kernels/level.hpp"
#include "numbers.hpp"
#include "policy.hpp"

namespace penstock::kernels {
extern const Level wide;
}

void update_is_the_same_on_two_threads(const penstock::kernels::Level& level);
void corrected_update_is_the_same_on_two_threads(const penstock::kernels::Level& level);
void replay_update_is_the_same_on_two_threads(const penstock::kernels::Level& level);
void a_rollout_keeps_what_ends_in_it();
void cells_agree(const penstock::kernels::Level& level, const penstock::kernels::LayerShape& shape, std::int32_t rows);
void heads_agree(const penstock::kernels::Level& level, const penstock::kernels::Head& head, std::int64_t rows);
void masks_forbid(const penstock::kernels::Level& level, const penstock::kernels::Head& head, std::int64_t rows);
void sequences_agree(const penstock::kernels::Level& level, bool lstm, std::size_t steps, std::size_t lanes, std::size_t size);

namespace {

using namespace penstock::kernels;
using penstock::test::check;
using penstock::test::Numbers;

std::vector<double> plain_mlp(const std::vector<LayerShape>& layers, const std::vector<float>& flat,
                              std::vector<double> x) {
    const float* at = flat.data();
    for (const LayerShape& layer : layers) {
        const auto inputs = static_cast<std::size_t>(layer.inputs);
        const auto outputs = static_cast<std::size_t>(layer.outputs);
        std::vector<double> y(outputs);
        for (std::size_t o = 0; o < outputs; ++o) {
            y[o] = at[inputs * outputs + o];
            for (std::size_t i = 0; i < inputs; ++i) y[o] += x[i] * at[i * outputs + o];
            if (layer.activation == Elementwise::tanh) y[o] = std::tanh(y[o]);
        }
        at += (inputs + 1) * outputs;
        x = y;
    }
    return x;
}

struct Shape {
    std::int32_t features, hidden, actions;
};

// Arrays end exactly behind their last number, so that the address sanitizer finds each access behind it.
void forward_agrees(const Level& level, const Shape& shape, std::int64_t rows, bool gaussian) {
    const std::vector<LayerShape> actor{{shape.features, shape.hidden, Elementwise::tanh},
                                        {shape.hidden, shape.actions, Elementwise::none}};
    const std::vector<LayerShape> critic{{shape.features, shape.hidden, Elementwise::tanh}, {shape.hidden, 1, Elementwise::none}};
    const auto layer_size = [](const std::vector<LayerShape>& layers) {
        std::int64_t size = 0;
        for (const LayerShape& layer : layers) size += (std::int64_t{layer.inputs} + 1) * layer.outputs;
        return static_cast<std::size_t>(size);
    };
    Numbers numbers;
    const auto actions = static_cast<std::size_t>(shape.actions);
    const auto n = static_cast<std::size_t>(rows);
    const std::vector<float> actor_flat = numbers.many(layer_size(actor) + (gaussian ? actions : 0));
    const std::vector<float> critic_flat = numbers.many(layer_size(critic));
    Graph graph{{{false, shape.features, 0}}, actor, critic,
                {gaussian ? HeadKind::gaussian : HeadKind::categorical, shape.actions, static_cast<std::int64_t>(layer_size(actor))}, false, false};
    Policy policy(graph, level);
    policy.load(actor_flat.data(), critic_flat.data(), {});
    const std::vector<float> obs = numbers.many(n * static_cast<std::size_t>(shape.features));
    const std::vector<float> noise(n * actions, 0.0F), explore(n, 1.0F);
    std::vector<float> action(n * actions), log_prob(n), value(n);
    std::vector<std::int64_t> chosen(n);
    const auto rows_of = [](const void* data, std::size_t bytes) {
        return Rows{static_cast<std::byte*>(const_cast<void*>(data)), static_cast<std::ptrdiff_t>(bytes), Dtype::f32};
    };
    const Rows field = rows_of(obs.data(), static_cast<std::size_t>(shape.features) * 4);
    Outputs out;
    out.action = gaussian ? rows_of(action.data(), actions * 4) : rows_of(chosen.data(), 8);
    out.log_prob = rows_of(log_prob.data(), 4);
    out.value = rows_of(value.data(), 4);
    policy.act({&field, noise.data(), explore.data()}, out, rows);
    const std::string name = std::string(level.name) + " " + std::to_string(shape.features) + " " +
                             std::to_string(shape.hidden) + " " + std::to_string(shape.actions) + " rows " + std::to_string(rows);
    for (std::size_t r = 0; r < n; ++r) {
        const auto first = obs.begin() + static_cast<std::ptrdiff_t>(r * static_cast<std::size_t>(shape.features));
        const std::vector<double> x(first, first + shape.features);
        check(std::abs(plain_mlp(critic, critic_flat, x)[0] - value[r]) < 1e-4, "value " + name);
        const std::vector<double> head = plain_mlp(actor, actor_flat, x);
        if (gaussian) {
            for (std::size_t k = 0; k < actions; ++k) check(std::abs(head[k] - action[r * actions + k]) < 1e-4, "action " + name);
        } else {
            const double best = head[static_cast<std::size_t>(chosen[r])];
            double total = 0.0;
            for (const double logit : head) {
                check(logit <= best + 1e-4, "chosen " + name);
                total += std::exp(logit - best);
            }
            check(std::abs(log_prob[r] + std::log(total)) < 1e-4, "log_prob " + name);
        }
    }
}

std::uint64_t hash_of(const std::vector<float>& values) {
    std::uint64_t hash = 14695981039346656037ULL;
    for (const float value : values) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, &value, sizeof(bits));
        hash = (hash ^ bits) * 1099511628211ULL;
    }
    return hash;
}

// The hash of 7 numbers for each of 1,000 lanes. It is the same on every machine.
void noise_is_the_same_everywhere(const Level& level) {
    const struct {
        Distribution distribution;
        std::uint64_t hash;
    } expected[] = {{Distribution::normal, 0x2FCB963CA778C73FULL}, {Distribution::uniform, 0xDB6B08CFF2AF83EBULL}, {Distribution::gumbel, 0x55C3B1604B482658ULL}};
    std::vector<std::int64_t> lanes(1000);
    for (std::size_t i = 0; i < lanes.size(); ++i) lanes[i] = static_cast<std::int64_t>(i) * 3;
    for (const auto& [distribution, hash] : expected) {
        std::vector<float> out(7000);
        level.noise({12345, 678, lanes.data(), lanes.size(), 7, distribution}, out.data());
        if (hash_of(out) != hash) std::fprintf(stderr, "0x%llXULL\n", static_cast<unsigned long long>(hash_of(out)));
        check(hash_of(out) == hash, "the noise of this machine");
    }
}

// Reward 1, gamma 0.9, value 10 everywhere: advantages are 0, and a truncation in the middle changes nothing.
void the_clock_task_has_no_advantage() {
    constexpr std::int64_t steps = 5, lanes = 3;
    const std::vector<float> reward(steps * lanes, 1.0F), value((steps + 1) * lanes, 10.0F), final_value{10.0F};
    bool terminated[steps * lanes] = {}, truncated[steps * lanes] = {}, valid[steps * lanes];
    std::fill_n(valid, steps * lanes, true);
    truncated[2 * lanes + 1] = true;
    const std::int64_t final_t = 2, final_lane = 1;
    std::vector<float> advantage(steps * lanes, 1.0F), target(steps * lanes);
    gae({steps, lanes, reward.data(), value.data(), terminated, truncated, valid, 1, &final_t, &final_lane,
         final_value.data(), true},
        0.9, 0.95, advantage.data(), target.data());
    for (std::size_t row = 0; row < advantage.size(); ++row) {
        check(std::abs(advantage[row]) < 1e-6F, "advantage of the clock task");
        check(std::abs(target[row] - 10.0F) < 1e-6F, "target of the clock task");
    }
}

}  // namespace

int main() {
    std::vector<const Level*> tested(levels().begin(), levels().end());
    tested.push_back(&wide);
    for (const Level* level : tested) {
        std::printf("level %s, %d floats\n", level->name, level->width);
        for (const Shape& shape : {Shape{1, 1, 1}, Shape{3, 64, 1}, Shape{4, 64, 2}, Shape{5, 7, 4}, Shape{17, 33, 5},
                                   Shape{9, 100, 18}, Shape{65, 16, 3}})
            for (const std::int64_t rows : {1, 2, 3, 4, 5, 7, 8, 63, 64, 65, 130})
                for (const bool gaussian : {true, false}) forward_agrees(*level, shape, rows, gaussian);
        for (const std::int32_t size : {1, 2, 5, 18})
            for (const std::int64_t rows : {1, 7, 64, 65, 130}) {
                heads_agree(*level, {HeadKind::squashed_gaussian, size, 0, 1, -1.0, 0.5}, rows);
                heads_agree(*level, {HeadKind::deterministic, size}, rows);
                for (const std::int32_t atoms : {1, 2, 51})
                    for (const bool dueling : {false, true})
                        heads_agree(*level, {HeadKind::epsilon_greedy, size, 0, atoms, -2.0, 3.0, dueling}, rows);
            }
        for (const std::int32_t size : {2, 5, 18})
            for (const std::int64_t rows : {1, 64, 130})
                for (const HeadKind kind : {HeadKind::categorical, HeadKind::epsilon_greedy})
                    masks_forbid(*level, {kind, size}, rows);
        for (const LayerKind kind : {LayerKind::lstm, LayerKind::gru})
            for (const std::int32_t size : {1, 5, 16, 33})
                for (const std::int32_t rows : {1, 7, 64}) cells_agree(*level, {3, size, Elementwise::none, kind}, rows);
        for (const bool lstm : {true, false}) {
            for (const std::size_t size : {1, 5, 16, 33}) sequences_agree(*level, lstm, 4, 3, size);
            sequences_agree(*level, lstm, 1, 1, 17);
            sequences_agree(*level, lstm, 3, 67, 9);
            sequences_agree(*level, lstm, 2, 2, 70);
        }
        noise_is_the_same_everywhere(*level);
        update_is_the_same_on_two_threads(*level);
        corrected_update_is_the_same_on_two_threads(*level);
        replay_update_is_the_same_on_two_threads(*level);
    }
    the_clock_task_has_no_advantage();
    a_rollout_keeps_what_ends_in_it();
    return 0;
}
