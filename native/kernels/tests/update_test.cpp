// The update on one thread and on two gives the same bits, also when its minibatches are spread over several calls, and
// for lanes of older policies. Learning from a constant target reaches it.

#include "corrected_update.hpp"
#include "update.hpp"

#include <array>
#include <cmath>
#include <optional>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "numbers.hpp"

namespace {

using namespace penstock::kernels;
using penstock::test::check;
using penstock::test::Numbers;

constexpr std::int64_t kRows = 300;

// The gradients of the first minibatch, with the weight of its rows behind them.
template <typename Learning>
std::vector<std::vector<float>> found(Learning& learner, const std::vector<std::int64_t>& indices, int threads) {
    const std::vector<float> weights(indices.size(), 1.0F);
    std::vector<std::vector<float>> gradients{std::vector<float>(learner.actor[0].size()),
                                              std::vector<float>(learner.critic[0].size())};
    learner.update.load({learner.actor[0].data(), nullptr, nullptr, nullptr}, {learner.critic[0].data(), nullptr, nullptr, nullptr});
    const double weight = learner.update.compute_gradients(
        {indices.data(), weights.data(), 1, static_cast<std::int64_t>(indices.size())}, AdvantageMoments{0.1, 0.9}, threads);
    learner.update.store_gradients(gradients[0].data(), gradients[1].data());
    gradients.push_back({static_cast<float>(weight)});
    return gradients;
}

struct Learner {
    Learner(const Graph& graph, const std::string& optimizer, const Level& level)
        : update(graph, {0.2, 0.5, 0.01, 0.5, false, Optimizer::of(optimizer, 1e-5, 0.9, 0.1), true}, kRows, level),
          actor(4, std::vector<float>(static_cast<std::size_t>(update.actor_size()))),
          critic(4, std::vector<float>(static_cast<std::size_t>(update.critic_size()))) {
        Numbers numbers;
        for (float& value : actor[0]) value = 0.3F * numbers.next();
        for (float& value : critic[0]) value = 0.3F * numbers.next();
        const auto rows = static_cast<std::size_t>(kRows);
        const auto features = static_cast<std::size_t>(graph.encoding[0].size);
        const auto actions = static_cast<std::size_t>(graph.head.gaussian() ? graph.head.size : 1);
        const std::vector<float> obs = numbers.many(rows * features), samples = numbers.many(rows * actions);
        const std::vector<float> log_prob(rows, -1.0F), advantage = numbers.many(rows), target(rows, 0.5F);
        std::vector<std::int64_t> chosen(rows);
        for (std::size_t i = 0; i < rows; ++i) chosen[i] = static_cast<std::int64_t>(i) % graph.head.size;
        const auto column = [](const auto& values, std::size_t count) {
            return Rows{reinterpret_cast<std::byte*>(const_cast<std::decay_t<decltype(values[0])>*>(values.data())),
                        static_cast<std::ptrdiff_t>(count * sizeof(values[0])), Dtype::f32};
        };
        const Rows field = column(obs, features);
        const Rows action = graph.head.gaussian() ? column(samples, actions) : column(chosen, 1);
        update.pack({&field, action, column(log_prob, 1), column(advantage, 1), column(target, 1)}, {}, 0, kRows);
    }

    void run(std::int64_t first, std::int64_t count, std::int64_t size, int threads) {
        std::vector<std::int64_t> indices(static_cast<std::size_t>(count * size));
        std::vector<float> weights(indices.size(), 1.0F);
        for (std::size_t i = 0; i < indices.size(); ++i)
            indices[i] = (first * size + static_cast<std::int64_t>(i)) * 7 % kRows;
        if (first == 0) weights[static_cast<std::size_t>(size) - 1] = 0.0F;
        update.load(vectors(actor), vectors(critic));
        step = update.run({indices.data(), weights.data(), count, size}, step, 1e-2, threads);
        update.store(vectors(actor), vectors(critic));
    }

    Vectors vectors(std::vector<std::vector<float>>& of) const {
        const bool sums = update.loss().optimizer.sum_name() != nullptr;
        return {of[0].data(), of[1].data(), of[2].data(), sums ? of[3].data() : nullptr};
    }

    Update update;
    std::vector<std::vector<float>> actor, critic;
    std::int64_t step = 0;
};

}  // namespace

void update_is_the_same_on_two_threads(const Level& level) {
    for (const Elementwise activation : {Elementwise::tanh, Elementwise::gelu, Elementwise::sigmoid})
        for (const bool gaussian : {true, false})
            for (const std::int64_t size : {1, 5, 64, 150}) {
                const std::vector<LayerShape> actor{{5, 33, activation}, {33, 18, activation}, {18, 6, Elementwise::none}};
                const std::vector<LayerShape> critic{{5, 20, activation}, {20, 1, Elementwise::none}};
                const Graph graph{{{false, 5, 0}}, actor, critic, {gaussian ? HeadKind::gaussian : HeadKind::categorical, 6}, false, false};
                const std::string optimizer = activation == Elementwise::gelu ? "muon" : "adam";
                Learner one(graph, optimizer, level), two(graph, optimizer, level);
                one.run(0, 8, size, 1);
                two.run(0, 3, size, 2);
                two.run(3, 5, size, 2);
                const std::string name = std::string(level.name) + " " + optimizer + ", minibatches of " + std::to_string(size);
                check(one.step == two.step, "steps of " + name);
                check(one.actor == two.actor, "actor of " + name);
                check(one.critic == two.critic, "critic of " + name);
                const Metrics metrics = two.update.take_metrics();
                check(metrics.count == two.step && std::isfinite(metrics.policy_loss), "metrics of " + name);
                check(found(one, {7, 0, 299}, 1) == found(two, {7, 0, 299}, 2), "gradients of " + name);
            }
    const std::vector<LayerShape> layers{{4, 16, Elementwise::tanh}, {16, 1, Elementwise::none}};
    Learner learner({{{false, 4, 0}}, layers, layers, {HeadKind::gaussian, 1}, false, false}, "adam", level);
    learner.run(0, 300, 32, 2);
    learner.update.take_metrics();
    learner.run(300, 50, 32, 2);
    const Metrics metrics = learner.update.take_metrics();
    check(metrics.value_loss / static_cast<double>(metrics.count) < 1e-3, "a constant target is learned");
}

namespace {

// Eight lanes of 36 rows and one behind, two to a slot.
struct LaneLearner {
    static constexpr std::int64_t kSteps = 36, kStride = 2, kSlots = 4, kAll = (kSteps + 1) * kStride * kSlots;

    LaneLearner(const Graph& graph, const Level& level)
        : update(graph, {0.0, 0.5, 0.01, 0.5, true, Optimizer::of("adam", 1e-5, 0.0, 0.0), true, false}, {kSteps, kStride, 0.9, 0.95, 1.0, 1.0, 1.5}, kAll, level),
          actor(3, std::vector<float>(static_cast<std::size_t>(update.actor_size()))),
          critic(3, std::vector<float>(static_cast<std::size_t>(update.critic_size()))) {
        Numbers numbers;
        for (float& value : actor[0]) value = 0.3F * numbers.next();
        for (float& value : critic[0]) value = 0.3F * numbers.next();
        const auto rows = static_cast<std::size_t>(kAll);
        const auto features = static_cast<std::size_t>(graph.encoding[0].size);
        const auto actions = static_cast<std::size_t>(graph.head.gaussian() ? graph.head.size : 1);
        std::vector<float> obs = numbers.many(rows * features), samples = numbers.many(rows * actions);
        std::vector<float> log_prob(rows, -1.0F), reward = numbers.many(rows), bootstrap = numbers.many(rows);
        std::vector<float> sizes = numbers.many(rows);
        std::vector<std::int64_t> chosen(rows);
        std::array<std::unique_ptr<bool[]>, 3> flags;  // terminated, truncated, valid
        for (auto& flag : flags) flag = std::make_unique<bool[]>(rows);
        for (std::size_t i = 0; i < rows; ++i) {
            chosen[i] = static_cast<std::int64_t>(i) % graph.head.size;
            flags[0][i] = numbers.next() > 0.8F;
            flags[1][i] = numbers.next() > 0.8F;
            flags[2][i] = numbers.next() > -0.8F;
        }
        const auto column = [](auto* values, std::size_t count) {
            return Rows{reinterpret_cast<std::byte*>(values), static_cast<std::ptrdiff_t>(count * sizeof(*values)), Dtype::f32};
        };
        const Rows field = column(obs.data(), features);
        const Rows action = graph.head.gaussian() ? column(samples.data(), actions) : column(chosen.data(), 1);
        update.pack({&field, action, {}, {}, {}},
                    {column(log_prob.data(), 1), column(reward.data(), 1), column(flags[0].get(), 1),
                     column(flags[1].get(), 1), column(flags[2].get(), 1), column(bootstrap.data(), 1),
                     column(sizes.data(), 1)},
                    {}, 0, kAll);
    }

    void run(std::int64_t first, std::int64_t count, std::int64_t size, int threads) {
        std::vector<std::int64_t> indices;
        for (std::int64_t i = first * size; i < (first + count) * size; ++i)
            indices.push_back(i * 5 % kSlots * (kSteps + 1) * kStride + i % kStride);
        std::vector<float> weights(indices.size(), 1.0F);
        if (first == 0) weights[static_cast<std::size_t>(size) - 1] = 0.0F;
        const auto vectors = [](auto& of) { return Vectors{of[0].data(), of[1].data(), of[2].data(), nullptr}; };
        update.load(vectors(actor), vectors(critic));
        step = update.run({indices.data(), weights.data(), count, size}, step, 1e-2, threads);
        update.store(vectors(actor), vectors(critic));
    }

    CorrectedUpdate update;
    std::vector<std::vector<float>> actor, critic;
    std::int64_t step = 0;
};

}  // namespace

void corrected_update_is_the_same_on_two_threads(const Level& level) {
    for (const bool gaussian : {true, false})
        for (const std::int64_t size : {1, 2, 7}) {
            const std::vector<LayerShape> actor{{5, 33, Elementwise::tanh}, {33, 18, Elementwise::gelu}, {18, 6, Elementwise::none}};
            const std::vector<LayerShape> critic{{5, 20, Elementwise::tanh}, {20, 1, Elementwise::none}};
            const Graph graph{{{false, 5, 0}}, actor, critic, {gaussian ? HeadKind::gaussian : HeadKind::categorical, 6}, false, false};
            LaneLearner one(graph, level), two(graph, level);
            one.run(0, 8, size, 1);
            two.run(0, 3, size, 2);
            two.run(3, 5, size, 2);
            const std::string name = std::string(level.name) + " minibatches of lanes, " + std::to_string(size);
            check(one.step == two.step, "steps of " + name);
            check(one.actor == two.actor, "actor of " + name);
            check(one.critic == two.critic, "critic of " + name);
            const Metrics metrics = two.update.take_metrics();
            check(metrics.count == two.step && std::isfinite(metrics.policy_loss), "metrics of " + name);
            check(found(one, {0, LaneLearner::kStride * (LaneLearner::kSteps + 1)}, 1) ==
                      found(two, {0, LaneLearner::kStride * (LaneLearner::kSteps + 1)}, 2),
                  "gradients of " + name);
            check(metrics.rho > 0.0 && metrics.rho <= static_cast<double>(metrics.count), "weights of " + name);
        }
}
