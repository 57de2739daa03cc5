// The Python class of updates from a table. Checks arrays; holds no mathematics.
#include "bind_replay.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <utility>

#include "arrays.hpp"
#include "deterministic_actor_critic.hpp"
#include "distributional_actor_critic.hpp"
#include "q_learning.hpp"
#include "shapes.hpp"
#include "soft_actor_critic.hpp"

namespace penstock::kernels {
namespace {

using namespace nb::literals;

// The caller keeps the arrays of the minibatch alive.
class PyReplayUpdate {
public:
    explicit PyReplayUpdate(std::unique_ptr<ReplayUpdate> update) : update_(std::move(update)) {}

    void bind(const std::vector<Readable>& obs, const std::vector<Readable>& next, const Readable& action,
              const Line<const float>& reward, const Line<const float>& discount,
              const std::optional<Line<const float>>& importance, const Line<const float>& weight,
              const std::optional<Line<float>>& priority) {
        const auto rows = static_cast<std::int64_t>(reward.shape(0));
        require(rows > 0, "a minibatch has at least one row");
        const auto field = [&](const Readable& array, std::int64_t size, const char* name) {
            const Field found = field_of(array, false, name);
            require(found.lanes == rows && found.size == size, std::string(name) + " does not have the minibatch's shape");
            return found.at(0);
        };
        const auto vector = [&](const auto& array, const char* name) {
            require(static_cast<std::int64_t>(array.shape(0)) == rows, std::string(name) + " does not have the minibatch's shape");
            return array.data();
        };
        Minibatch made;
        require(obs.size() == update_->fields() && next.size() == obs.size(), "there must be one array for each encoding");
        for (std::size_t i = 0; i < obs.size(); ++i) {
            const std::int64_t size = update_->encoding(i).one_hot ? 1 : update_->encoding(i).size;
            made.obs.push_back(field(obs[i], size, "observation"));
            made.next.push_back(field(next[i], size, "next observation"));
        }
        made.action = field(action, update_->action_numbers(), "action");
        made.reward = vector(reward, "reward");
        made.discount = vector(discount, "discount");
        made.importance = importance ? vector(*importance, "importance") : nullptr;
        made.weight = vector(weight, "weight");
        made.priority = priority ? vector(*priority, "priority") : nullptr;
        made.size = rows;
        update_->bind(std::move(made));
        bound_ = true;
    }

    // Takes the array of a state; false if it is no array of a learned vector.
    bool load(const std::string& name, const Line<const float>& values) {
        return with(name, static_cast<std::int64_t>(values.shape(0)),
                    [&](Learned& vector, Floats& packed) { vector.load(packed, values.data()); });
    }
    bool store(const std::string& name, const Line<float>& values) {
        return with(name, static_cast<std::int64_t>(values.shape(0)),
                    [&](Learned& vector, Floats& packed) { vector.store(packed, values.data()); });
    }
    // Call it after parameters were loaded.
    void refresh() {
        for (Learned* vector : update_->learned()) vector->refresh();
    }

    // Features are shifted and scaled by these from now on.
    void normalise(const Line<const double>& mean, const Line<const double>& variance) {
        const auto features = static_cast<std::size_t>(update_->features());
        require(mean.shape(0) == features && variance.shape(0) == features, "there is one mean and one variance for each feature");
        update_->normalise(mean.data(), variance.data());
    }

    std::int64_t steps(const std::string& name) { return learned(name).steps; }
    void put_steps(const std::string& name, std::int64_t steps) { learned(name).steps = steps; }
    [[nodiscard]] std::int64_t gradient_steps() const { return update_->gradient_steps; }
    void put_gradient_steps(std::int64_t steps) { update_->gradient_steps = steps; }

    // Name, how often it is due, and the vectors with a gradient.
    [[nodiscard]] std::vector<std::tuple<std::string, std::int64_t, std::vector<std::string>>> phases() const {
        std::vector<std::tuple<std::string, std::int64_t, std::vector<std::string>>> found;
        for (const PhaseSpec& phase : update_->phases()) {
            std::vector<std::string> names;
            for (const Learned* vector : phase.learned) names.push_back(vector->name());
            found.emplace_back(phase.name, phase.every, names);
        }
        return found;
    }

    // The number of steps, why no row could be sampled, and what was wrong with a priority.
    std::tuple<std::int64_t, std::optional<std::string>, std::optional<std::string>> run(
        std::int64_t count, std::uint64_t seed, std::uint64_t number, double beta, const std::vector<double>& lr, int threads,
        const nb::capsule& minibatches) {
        check(lr, threads);
        const auto* of = static_cast<const Minibatches*>(minibatches.data(kMinibatchesName));
        Ran ran;
        {
            const nb::gil_scoped_release released;
            ran = update_->run({count, seed, number, beta, lr, threads}, *of);
        }
        const auto text = [](const char* why) { return why == nullptr ? std::nullopt : std::optional<std::string>(why); };
        return {ran.steps, text(ran.no_rows), text(ran.bad_priority)};
    }
    void step(const std::vector<double>& lr, int threads) {
        check(lr, threads);
        const nb::gil_scoped_release released;
        update_->step(lr, threads);
    }
    void compute_gradients(std::size_t phase, int threads) {
        require(bound_ && phase < update_->phases().size(), "there is no such phase, or no minibatch");
        const nb::gil_scoped_release released;
        update_->compute_gradients(phase, threads);
    }
    void apply(std::size_t phase, const std::vector<double>& lr, int threads) {
        require(phase < update_->phases().size() && lr.size() == update_->stepped(), "there is no such phase");
        const nb::gil_scoped_release released;
        update_->apply(phase, lr, threads);
    }
    void gradient(const std::string& name, const Line<float>& out) {
        Learned& vector = learned(name);
        require(static_cast<std::int64_t>(out.shape(0)) == vector.flat_size(), name + " has another length");
        vector.store_gradient(out.data());
    }
    void put_gradient(const std::string& name, const Line<const float>& values) {
        Learned& vector = learned(name);
        require(static_cast<std::int64_t>(values.shape(0)) == vector.flat_size(), name + " has another length");
        vector.load_gradient(values.data());
    }

    nb::dict metrics() {
        nb::dict found;
        for (const auto& [name, value] : update_->take_metrics()) found[name.c_str()] = value;
        return found;
    }

private:
    void check(const std::vector<double>& lr, int threads) const {
        require(bound_, "there is no minibatch yet");
        require(lr.size() == update_->stepped(), "there is one learning rate for each vector with an optimizer");
        require(threads == 1 || threads == 2, "an update runs on one or two threads");
    }

    Learned& learned(const std::string& name) {
        for (Learned* vector : update_->learned())
            if (vector->name() == name) return *vector;
        throw nb::key_error(name.c_str());
    }

    template <typename Use>
    bool with(const std::string& name, std::int64_t size, Use&& use) {
        for (Learned* vector : update_->learned())
            if (Floats* packed = vector->find(name, update_->optimizer())) {
                require(size == vector->flat_size(), name + " does not have its vector's length");
                use(*vector, *packed);
                return true;
            }
        return false;
    }

    std::unique_ptr<ReplayUpdate> update_;
    bool bound_ = false;
};

NoiseKeys keys_of(const std::vector<std::uint64_t>& seeds, std::int64_t first_row) { return {seeds, first_row}; }

PyReplayUpdate* soft_actor_critic(const std::vector<EncodingTuple>& encoding, const std::vector<LayerTuple>& actor,
                                  const std::vector<LayerTuple>& critic, int critics, std::int32_t action,
                                  double log_std_min, double log_std_max, bool learns_temperature, double target_entropy,
                                  double tau, std::int64_t policy_delay, const std::vector<std::uint64_t>& seeds,
                                  std::int64_t first_row, const OptimizerTuple& optimizer,
                                  const std::optional<std::string>& level_name) {
    require(seeds.size() == 2 && policy_delay > 0, "there are two noise inputs, and policy_delay is at least 1");
    return new PyReplayUpdate(std::make_unique<SoftActorCritic>(
        encodings_of(encoding), ActorCriticShapes{layers_of(actor), layers_of(critic), critics, action, false},
        SoftSettings{log_std_min, log_std_max, learns_temperature, target_entropy, tau}, policy_delay, keys_of(seeds, first_row),
        optimizer_of(optimizer), level_or_best(level_name)));
}

PyReplayUpdate* distributional_actor_critic(const std::vector<EncodingTuple>& encoding, const std::vector<LayerTuple>& actor,
                                            const std::vector<LayerTuple>& critic, int critics, std::int32_t action,
                                            double log_std_min, double log_std_max, bool learns_temperature,
                                            double target_entropy, double tau, std::int64_t policy_delay, double bound,
                                            bool refined, const std::vector<std::uint64_t>& seeds, std::int64_t first_row,
                                            const OptimizerTuple& optimizer, const std::optional<std::string>& level_name) {
    require(seeds.size() == 3 && policy_delay > 0, "there are three noise inputs, and policy_delay is at least 1");
    const std::vector<LayerShape> layers = layers_of(critic);
    require(!layers.empty() && layers.back().outputs == 2, "a critic of returns has two outputs");
    return new PyReplayUpdate(std::make_unique<DistributionalActorCritic>(
        encodings_of(encoding), ActorCriticShapes{layers_of(actor), layers, critics, action, true},
        SoftSettings{log_std_min, log_std_max, learns_temperature, target_entropy, tau},
        ReturnSettings{policy_delay, bound, refined}, keys_of(seeds, first_row), optimizer_of(optimizer), level_or_best(level_name)));
}

PyReplayUpdate* deterministic_actor_critic(const std::vector<EncodingTuple>& encoding, const std::vector<LayerTuple>& actor,
                                           const std::vector<LayerTuple>& critic, int critics, std::int32_t action,
                                           std::int64_t policy_delay, double smoothing, double smoothing_clip, double tau,
                                           const std::vector<std::uint64_t>& seeds, std::int64_t first_row, const OptimizerTuple& optimizer,
                                           const std::optional<std::string>& level_name) {
    require(seeds.size() == 1 && policy_delay > 0, "there is one noise input, and policy_delay is at least 1");
    return new PyReplayUpdate(std::make_unique<DeterministicActorCritic>(
        encodings_of(encoding), ActorCriticShapes{layers_of(actor), layers_of(critic), critics, action, true},
        DeterministicSettings{policy_delay, smoothing, smoothing_clip, tau}, keys_of(seeds, first_row), optimizer_of(optimizer),
        level_or_best(level_name)));
}

PyReplayUpdate* q_learning(const std::vector<EncodingTuple>& encoding, const std::vector<LayerTuple>& layers,
                           std::int32_t actions, std::int32_t atoms, double low, double high, bool dueling, bool double_q,
                           double error_clip, double max_grad_norm, double least_priority, std::int64_t target_every,
                           const OptimizerTuple& optimizer, const std::optional<std::string>& level_name) {
    require(actions > 0 && atoms > 0 && target_every > 0, "actions, atoms and target_every are at least 1");
    return new PyReplayUpdate(std::make_unique<QLearning>(
        encodings_of(encoding), layers_of(layers),
        QSettings{actions, atoms, low, high, dueling, double_q, error_clip, max_grad_norm, least_priority, target_every}, optimizer_of(optimizer),
        level_or_best(level_name)));
}

}  // namespace

void bind_replay(nb::module_& module) {
    nb::class_<PyReplayUpdate>(module, "ReplayUpdate")
        // Without conversion: its pointers would outlive a copy.
        .def("bind", &PyReplayUpdate::bind, array("obs"), array("next_obs"), array("action"), array("reward"), array("discount"),
             array("importance").none(), array("weight"), array("priority").none())
        .def("load", &PyReplayUpdate::load, "name"_a, "values"_a)
        .def("store", &PyReplayUpdate::store, "name"_a, array("values"))
        .def("refresh", &PyReplayUpdate::refresh)
        .def("normalise", &PyReplayUpdate::normalise, "mean"_a, "variance"_a)
        .def("steps", &PyReplayUpdate::steps, "name"_a)
        .def("put_steps", &PyReplayUpdate::put_steps, "name"_a, "steps"_a)
        .def_prop_rw("gradient_steps", &PyReplayUpdate::gradient_steps, &PyReplayUpdate::put_gradient_steps)
        .def_prop_ro("phases", &PyReplayUpdate::phases)
        .def("run", &PyReplayUpdate::run, "count"_a, "seed"_a, "number"_a, "beta"_a, "lr"_a, "threads"_a,
             "minibatches"_a)
        .def("step", &PyReplayUpdate::step, "lr"_a, "threads"_a)
        .def("compute_gradients", &PyReplayUpdate::compute_gradients, "phase"_a, "threads"_a)
        .def("apply", &PyReplayUpdate::apply, "phase"_a, "lr"_a, "threads"_a)
        .def("gradient", &PyReplayUpdate::gradient, "name"_a, array("out"))
        .def("put_gradient", &PyReplayUpdate::put_gradient, "name"_a, "values"_a)
        .def("metrics", &PyReplayUpdate::metrics);
    module.def("soft_actor_critic", &soft_actor_critic, "encoding"_a, "actor"_a, "critic"_a, "critics"_a, "action"_a,
               "log_std_min"_a, "log_std_max"_a, "learns_temperature"_a, "target_entropy"_a, "tau"_a, "policy_delay"_a, "seeds"_a,
               "first_row"_a, "optimizer"_a, "level"_a = nb::none());
    module.def("distributional_actor_critic", &distributional_actor_critic, "encoding"_a, "actor"_a, "critic"_a, "critics"_a,
               "action"_a, "log_std_min"_a, "log_std_max"_a, "learns_temperature"_a, "target_entropy"_a, "tau"_a,
               "policy_delay"_a, "bound"_a, "refined"_a, "seeds"_a, "first_row"_a, "optimizer"_a, "level"_a = nb::none());
    module.def("deterministic_actor_critic", &deterministic_actor_critic, "encoding"_a, "actor"_a, "critic"_a, "critics"_a,
               "action"_a, "policy_delay"_a, "smoothing"_a, "smoothing_clip"_a, "tau"_a, "seeds"_a, "first_row"_a,
               "optimizer"_a, "level"_a = nb::none());
    module.def("q_learning", &q_learning, "encoding"_a, "layers"_a, "actions"_a, "atoms"_a, "low"_a, "high"_a, "dueling"_a,
               "double_q"_a, "error_clip"_a, "max_grad_norm"_a, "least_priority"_a, "target_every"_a, "optimizer"_a,
               "level"_a = nb::none());
}

}  // namespace penstock::kernels
