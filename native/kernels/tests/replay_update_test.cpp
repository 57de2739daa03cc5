// Gradient steps from a table, of each algorithm: one thread and two give the same bits, however the steps are spread over
// calls; and values learn a constant reward.

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "deterministic_actor_critic.hpp"
#include "distributional_actor_critic.hpp"
#include "numbers.hpp"
#include "q_learning.hpp"
#include "soft_actor_critic.hpp"

namespace {

using namespace penstock::kernels;
using penstock::test::check;
using penstock::test::Numbers;

constexpr std::int64_t kRows = 75;
constexpr std::int32_t kFeatures = 5, kActions = 2;

// A minibatch that is filled anew for each step, with a reward of 1 and no next value.
struct World {
    explicit World(bool discrete) : is_discrete(discrete) {
        const auto column = [](auto& values, std::size_t count, Dtype dtype) {
            return Rows{reinterpret_cast<std::byte*>(values.data()), static_cast<std::ptrdiff_t>(count * sizeof(values[0])), dtype};
        };
        minibatch.obs = {column(obs, kFeatures, Dtype::f32)};
        minibatch.next = {column(next, kFeatures, Dtype::f32)};
        minibatch.action = discrete ? column(chosen, 1, Dtype::i64) : column(action, kActions, Dtype::f32);
        minibatch.reward = reward.data();
        minibatch.discount = discount.data();
        minibatch.importance = discrete ? weight.data() : nullptr;
        minibatch.weight = weight.data();
        minibatch.priority = discrete ? priority.data() : nullptr;
        minibatch.size = kRows;
    }

    static const char* sample(void* self, std::uint64_t, std::uint64_t number, double) {
        auto& world = *static_cast<World*>(self);
        Numbers numbers;
        for (std::uint64_t i = 0; i < number; ++i) numbers.next();
        for (float& value : world.obs) value = numbers.next();
        for (float& value : world.next) value = numbers.next();
        for (float& value : world.action) value = 0.9F * numbers.next();
        for (std::int64_t& value : world.chosen) value = numbers.next() > 0.0F ? 1 : 0;
        return nullptr;
    }
    static const char* rank(void* self, const float* priorities) {
        auto& world = *static_cast<World*>(self);
        for (std::int64_t i = 0; i < kRows; ++i) check(std::isfinite(priorities[i]), "priorities are finite");
        ++world.ranked;
        return nullptr;
    }

    static constexpr std::size_t rows = kRows;
    bool is_discrete;
    std::vector<float> obs = std::vector<float>(rows * kFeatures), next = obs, action = std::vector<float>(rows * kActions);
    std::vector<std::int64_t> chosen = std::vector<std::int64_t>(rows);
    std::vector<float> reward = std::vector<float>(rows, 1.0F), discount = std::vector<float>(rows, 0.0F);
    std::vector<float> weight = std::vector<float>(rows, 1.0F), priority = std::vector<float>(rows);
    int ranked = 0;
    Minibatch minibatch;
};

std::unique_ptr<ReplayUpdate> make(const std::string& name, const Optimizer& optimizer, const Level& level) {
    const std::vector<Encoding> encoding{{false, kFeatures, 0}};
    const auto mlp = [](std::int32_t inputs, std::int32_t outputs) {
        return std::vector<LayerShape>{{inputs, 20, Elementwise::relu}, {20, 33, Elementwise::tanh}, {33, outputs, Elementwise::none}};
    };
    if (name == "q") {
        const QSettings settings{kActions, 5, -2.0, 2.0, true, true, 1.0, 10.0, 0.01, 3};
        return std::make_unique<QLearning>(encoding, mlp(kFeatures, (kActions + 1) * 5), settings, optimizer, level);
    }
    const bool deterministic = name == "deterministic", soft = name.starts_with("soft");
    const bool returns = !deterministic && !soft;
    const ActorCriticShapes shapes{mlp(kFeatures, deterministic ? kActions : 2 * kActions),
                                   mlp(kFeatures + kActions, returns ? 2 : 1),
                                   name == "soft, three critics" ? 3 : 2, kActions, !soft};
    const SoftSettings settings{-20.0, 2.0, true, -2.0, 0.01};
    if (soft) return std::make_unique<SoftActorCritic>(encoding, shapes, settings, 2, NoiseKeys{{1, 2}, 0}, optimizer, level);
    if (returns)
        return std::make_unique<DistributionalActorCritic>(encoding, shapes, settings,
                                                           ReturnSettings{2, 3.0, name == "refined returns"},
                                                           NoiseKeys{{1, 2, 3}, 0}, optimizer, level);
    return std::make_unique<DeterministicActorCritic>(encoding, shapes, DeterministicSettings{2, 0.2, 0.5, 0.01},
                                                      NoiseKeys{{1}, 0}, optimizer, level);
}

std::vector<float> parameters(ReplayUpdate& update) {
    std::vector<float> found;
    for (Learned* vector : update.learned()) {
        std::vector<float> flat(static_cast<std::size_t>(vector->flat_size()));
        vector->store(*vector->find(vector->name(), update.optimizer()), flat.data());
        found.insert(found.end(), flat.begin(), flat.end());
    }
    return found;
}

// Runs `steps` gradient steps, `at_once` of them in a call. Returns the parameters; `value` is the last mean value.
std::vector<float> trained(const std::string& name, const Optimizer& optimizer, const Level& level, std::int64_t steps,
                           std::int64_t at_once, int threads, double& value) {
    World world(name == "q");
    const std::unique_ptr<ReplayUpdate> update = make(name, optimizer, level);
    Numbers numbers;
    for (Learned* vector : update->learned()) {
        std::vector<float> flat = numbers.many(static_cast<std::size_t>(vector->flat_size()));
        // A mean deviation is at least 0.
        for (float& number : flat) number = vector->name().starts_with("mean_") ? std::abs(number) : 0.3F * number;
        vector->load(*vector->find(vector->name(), optimizer), flat.data());
        vector->refresh();
    }
    update->bind(world.minibatch);
    const Minibatches minibatches{&world, &World::sample, &World::rank};
    for (std::int64_t done = 0; done < steps; done += at_once) {
        const Steps now{at_once, 0, static_cast<std::uint64_t>(done), 0.5, std::vector<double>(update->stepped(), 3e-3), threads};
        const Ran ran = update->run(now, minibatches);
        check(ran.steps == at_once && !ran.stopped(), "all steps are taken");
        for (const auto& [metric, mean] : update->take_metrics())
            if (metric == "mean_value") value = mean;
    }
    check(world.ranked == (name == "q" ? steps : 0), "rows are ranked after each step");
    check(update->gradient_steps == steps, "steps are counted");
    return parameters(*update);
}

}  // namespace

void replay_update_is_the_same_on_two_threads(const Level& level) {
    const Optimizer adam = Optimizer::of("adam", 1e-8, 0.0, 0.0);
    const auto same = [&](const std::string& name, const Optimizer& optimizer, const std::string& text) {
        double value = 0.0;
        const std::vector<float> one = trained(name, optimizer, level, 12, 12, 1, value);
        const std::vector<float> two = trained(name, optimizer, level, 12, 12, 2, value);
        check(std::memcmp(one.data(), two.data(), one.size() * sizeof(float)) == 0, text + ": two threads give the same bits");
        check(one == trained(name, optimizer, level, 12, 4, 1, value), text + ": the split over calls does not matter");
    };
    for (const std::string name : {"soft", "soft, three critics", "returns", "refined returns", "deterministic", "q"}) {
        const std::string text = std::string(level.name) + " " + name;
        same(name, adam, text);
        double value = 0.0;
        trained(name, adam, level, 600, 100, 1, value);
        check(std::abs(value - 1.0) < 0.05, text + ": values learn the reward");
    }
    same("soft, three critics", Optimizer::of("muon", 1e-8, 0.9, 0.1), std::string(level.name) + " three critics, muon");
    for (const std::string name : {"adamw", "sgd", "rmsprop", "muon"})
        same("deterministic", Optimizer::of(name, 1e-5, 0.9, 0.1), std::string(level.name) + " " + name);
}
