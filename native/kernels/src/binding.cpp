// The extension module penstock.kernels._native. Holds no mathematics.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <tuple>

#include "arrays.hpp"
#include "bind_sequence.hpp"
#include "bind_replay.hpp"
#include "bind_rollout.hpp"
#include "bound.hpp"
#include "gae.hpp"
#include "policy.hpp"
#include "shapes.hpp"
#include "update.hpp"

namespace penstock::kernels {
namespace {

using namespace nb::literals;

Distribution distribution_of(const std::string& name) {
    if (name == "normal") return Distribution::normal;
    if (name == "uniform") return Distribution::uniform;
    if (name == "gumbel") return Distribution::gumbel;
    throw std::invalid_argument("unknown distribution " + name);
}

// kind, size, offset of log_std, atoms, low, high, dueling
using HeadTuple = std::tuple<std::string, std::int32_t, std::int64_t, std::int32_t, double, double, bool>;

Head head_of(const HeadTuple& tuple) {
    constexpr const char* names[] = {"Gaussian", "Categorical", "SquashedGaussian", "Deterministic", "EpsilonGreedy"};
    const auto& [name, size, log_std, atoms, low, high, dueling] = tuple;
    for (std::int32_t i = 0; i < 5; ++i)
        if (name == names[i]) return {static_cast<HeadKind>(i), size, log_std, atoms, low, high, dueling};
    throw std::invalid_argument("unknown head " + name);
}

void init_policy(Policy* self, const std::vector<EncodingTuple>& encoding, const std::vector<LayerTuple>& actor,
                 const std::vector<LayerTuple>& critic, const HeadTuple& head, bool normalize_obs, bool normalize_value,
                 bool masked, const std::optional<std::string>& level_name) {
    Graph graph{encodings_of(encoding), layers_of(actor), layers_of(critic), head_of(head), normalize_obs, normalize_value, masked};
    new (self) Policy(std::move(graph), level_or_best(level_name));
}

using Vector32 = Flat<const float, nb::ndim<1>>;
using Vector64 = Flat<const double, nb::ndim<1>>;

void load_policy(Policy& self, const Vector32& actor, const std::optional<Vector32>& critic,
                 const std::optional<Vector64>& obs_mean, const std::optional<Vector64>& obs_var, double value_mean,
                 double value_var) {
    Statistics statistics{nullptr, nullptr, value_mean, value_var};
    self.check_load(actor.size(), critic ? critic->size() : 0, obs_mean ? obs_mean->size() : 0,
                    obs_var ? obs_var->size() : 0);
    if (obs_mean) statistics.obs_mean = obs_mean->data();
    if (obs_var) statistics.obs_var = obs_var->data();
    self.load(actor.data(), critic ? critic->data() : nullptr, statistics);
}

void act_once(nb::handle_t<Policy> self, std::vector<Readable> obs, std::optional<Readable> first,
              std::vector<Readable> carry, std::vector<Writable> next_carry, std::optional<Readable> mask,
              const Flat<const float>& noise, const Vector32& explore, std::optional<Writable> action,
              std::optional<Writable> log_prob, std::optional<Writable> value, std::optional<Writable> q) {
    Bound bound(nb::borrow(self), nb::cast<Policy&>(self),
                {std::move(obs), std::move(first), std::move(carry), std::move(next_carry), std::move(mask),
                 std::move(action), std::move(log_prob), std::move(value), std::move(q), {}, {}, {}},
                false, {}, 0);
    require(static_cast<std::int64_t>(noise.size()) == bound.lanes() * bound.noise_size(), "noise must be [n, size]");
    require(static_cast<std::int64_t>(explore.shape(0)) == bound.lanes(), "explore must be [n]");
    bound.act_on(0, noise.data(), explore.data());
}

Bound* bind(nb::handle_t<Policy> self, std::vector<Readable> obs, std::optional<Readable> first,
            const std::vector<Writable>& carry, std::optional<Readable> mask, std::optional<Writable> action,
            std::optional<Writable> log_prob, std::optional<Writable> value, std::optional<Writable> q,
            std::optional<Writable> environment, std::optional<Flat<const std::int64_t, nb::ndim<1>>> lanes,
            std::optional<Vector32> explore, bool bounded, std::vector<double> low, std::vector<double> high,
            std::int64_t start, std::uint64_t seed) {
    return new Bound(nb::borrow(self), nb::cast<Policy&>(self),
                     {std::move(obs), std::move(first), {carry.begin(), carry.end()}, carry, std::move(mask),
                      std::move(action), std::move(log_prob), std::move(value), std::move(q), std::move(environment),
                      std::move(lanes), std::move(explore)},
                     true, {bounded, std::move(low), std::move(high), start}, seed);
}

void draw_noise(const std::string& distribution, std::uint64_t seed, const Flat<const std::int64_t, nb::ndim<1>>& lanes,
                std::int64_t step, const Flat<float, nb::ndim<2>>& out, const std::optional<std::string>& level_name) {
    require(out.shape(0) == lanes.shape(0), "out must be [lanes, size]");
    const Noise noise{seed, static_cast<std::uint64_t>(step), lanes.data(), lanes.shape(0), out.shape(1),
                      distribution_of(distribution)};
    level_or_best(level_name).noise(noise, out.data());
}

void apply_elementwise(const std::string& name, const Flat<float>& values, const std::optional<std::string>& level_name) {
    level_or_best(level_name).elementwise(elementwise_of(name), values.data(), values.size());
}

template <typename T>
using Plane = Flat<T, nb::ndim<2>>;
template <typename T>
using Line = Flat<T, nb::ndim<1>>;

// One rollout for gae, and with `log_ratio` for vtrace.
void advantages_of(const Plane<const float>& reward, const Plane<const float>& value,
                   const Plane<const bool>& terminated, const Plane<const bool>& truncated,
                   const Plane<const bool>& valid, std::int64_t final_count, const Line<const std::int64_t>& final_t,
                   const Line<const std::int64_t>& final_lane, const Line<const float>& final_value, bool same_step,
                   double gamma, double gae_lambda, const Plane<float>& advantage, const Plane<float>& target,
                   const std::optional<Plane<const float>>& log_ratio, double rho_bar, double c_bar) {
    const auto steps = static_cast<std::int64_t>(reward.shape(0));
    const auto lanes = static_cast<std::int64_t>(reward.shape(1));
    const auto fits = [&](const auto& array, std::int64_t rows, const char* name) {
        require(static_cast<std::int64_t>(array.shape(0)) == rows && static_cast<std::int64_t>(array.shape(1)) == lanes,
                std::string(name) + " does not have reward's shape");
    };
    fits(value, steps + 1, "value (one row more)");
    fits(terminated, steps, "terminated");
    fits(truncated, steps, "truncated");
    fits(valid, steps, "valid");
    fits(advantage, steps, "advantage");
    fits(target, steps, "target");
    const auto room = static_cast<std::int64_t>(std::min({final_t.size(), final_lane.size(), final_value.size()}));
    require(final_count >= 0 && final_count <= room, "final_count is more than the side area holds");
    const Rollout rollout{steps, lanes, reward.data(), value.data(), terminated.data(), truncated.data(), valid.data(),
                          final_count, final_t.data(), final_lane.data(), final_value.data(), same_step};
    if (!log_ratio) {
        gae(rollout, gamma, gae_lambda, advantage.data(), target.data());
        return;
    }
    fits(*log_ratio, steps, "log_ratio");
    vtrace(rollout, {log_ratio->data(), rho_bar, c_bar}, gamma, gae_lambda, advantage.data(), target.data());
}

void init_update(Update* self, const std::vector<EncodingTuple>& encoding, const std::vector<LayerTuple>& actor,
                 const std::vector<LayerTuple>& critic, bool gaussian, std::int32_t size, bool normalize_obs,
                 bool normalize_value, std::optional<double> clip_param, double value_coef, double entropy_coef,
                 double max_grad_norm, bool normalize_advantage, const OptimizerTuple& optimizer, std::int64_t rows,
                 const std::optional<std::string>& level_name) {
    const Head head{gaussian ? HeadKind::gaussian : HeadKind::categorical, size};
    const Graph graph{encodings_of(encoding), layers_of(actor), layers_of(critic), head, normalize_obs, normalize_value};
    const Loss loss{clip_param.value_or(0.0), value_coef, entropy_coef, max_grad_norm, optimizer_of(optimizer),
                    normalize_advantage, clip_param.has_value()};
    new (self) Update(graph, loss, rows, level_or_best(level_name));
}

void pack_rows(Update& self, const std::vector<Readable>& obs, const Readable& action, const Line<const float>& log_prob,
               const Line<const float>& advantage, const Line<const float>& target, std::int64_t first,
               std::int64_t count, const std::optional<Vector64>& obs_mean, const std::optional<Vector64>& obs_var,
               double value_mean, double value_var) {
    const Graph& graph = self.graph();
    const auto field = [&](const auto& array, std::int64_t size, const char* name) {
        const Field found = field_of(array, false, name);
        require(found.lanes == self.rows() && found.size == size, std::string(name) + " does not have the rows' shape");
        return found.at(0);
    };
    require(obs.size() == graph.encoding.size(), "there must be one observation array for each encoding");
    std::vector<Rows> fields;
    for (std::size_t i = 0; i < obs.size(); ++i)
        fields.push_back(field(obs[i], graph.encoding[i].one_hot ? 1 : graph.encoding[i].size, "observation"));
    require(dtype_of(action.dtype(), "action") == (graph.head.gaussian() ? Dtype::f32 : Dtype::i64), "action has the wrong dtype");
    const std::size_t statistics = self.statistics();
    require((obs_mean ? obs_mean->size() : 0) == statistics && (obs_var ? obs_var->size() : 0) == statistics,
            "the observation statistics do not have one number for each feature");
    require(first >= 0 && count >= 0 && first + count <= self.rows(), "rows that are not there cannot be packed");
    self.pack({fields.data(), field(action, graph.head.gaussian() ? graph.head.size : 1, "action"),
               field(log_prob, 1, "log_prob"), field(advantage, 1, "advantage"), field(target, 1, "target")},
              {obs_mean ? obs_mean->data() : nullptr, obs_var ? obs_var->data() : nullptr, value_mean, value_var}, first, count);
}

// Parameters and the optimizer's moments: m before v.
Vectors vectors_of(const std::vector<Line<float>>& arrays, std::int64_t size, const Optimizer& optimizer) {
    const bool has_m = optimizer.m_name() != nullptr, has_v = optimizer.v_name() != nullptr;
    require(arrays.size() == 1 + static_cast<std::size_t>(has_m) + static_cast<std::size_t>(has_v),
            "a network has parameters and its optimizer's moments");
    for (const auto& array : arrays)
        require(static_cast<std::int64_t>(array.size()) == size, "a vector does not have its network's length");
    return {arrays[0].data(), has_m ? arrays[1].data() : nullptr, has_v ? arrays.back().data() : nullptr};
}

std::int64_t run_update(Update& self, const std::vector<Line<float>>& actor, const std::vector<Line<float>>& critic,
                        const Plane<const std::int64_t>& indices, const Plane<const float>& weights, std::int64_t step,
                        double lr, int threads) {
    const Vectors actor_vectors = vectors_of(actor, self.actor_size(), self.loss().optimizer);
    const Vectors critic_vectors = vectors_of(critic, self.critic_size(), self.loss().optimizer);
    require(indices.shape(0) == weights.shape(0) && indices.shape(1) == weights.shape(1), "weights must have the indices' shape");
    require(threads == 1 || threads == 2, "an update runs on one or two threads");
    const Minibatches minibatches{indices.data(), weights.data(), static_cast<std::int64_t>(indices.shape(0)),
                                  static_cast<std::int64_t>(indices.shape(1))};
    const nb::gil_scoped_release released;
    self.load(actor_vectors, critic_vectors);
    const std::int64_t after = self.run(minibatches, step, lr, threads);
    self.store(actor_vectors, critic_vectors);
    return after;
}

nb::dict metrics_of(Update& self) {
    const Metrics sums = self.take_metrics();
    nb::dict means;
    if (sums.count == 0) return means;
    const auto mean = [&](const char* name, double total) { means[name] = total / static_cast<double>(sums.count); };
    mean("policy_loss", sums.policy_loss);
    mean("value_loss", sums.value_loss);
    mean("entropy", sums.entropy);
    mean("grad_norm", sums.grad_norm);
    if (!self.loss().clipped) return means;
    mean("approx_kl", sums.approx_kl);
    mean("clip_fraction", sums.clip_fraction);
    return means;
}

std::vector<std::string> level_names() {
    std::vector<std::string> names;
    for (const Level* known : levels()) names.emplace_back(known->name);
    return names;
}

}  // namespace

NB_MODULE(_native, module) {
    module.def("levels", &level_names, "Instruction-set levels that this processor runs, slowest first.");
    module.def("noise", &draw_noise, "distribution"_a, "seed"_a, "lanes"_a, "step"_a, "out"_a, "level"_a = nb::none());
    module.def("elementwise", &apply_elementwise, "name"_a, "values"_a, "level"_a = nb::none());
    module.def("advantages", &advantages_of, "reward"_a, "value"_a, "terminated"_a, "truncated"_a, "valid"_a,
               "final_count"_a, "final_t"_a, "final_lane"_a, "final_value"_a, "same_step"_a, "gamma"_a, "gae_lambda"_a,
               "advantage"_a, "target"_a, "log_ratio"_a.none(), "rho_bar"_a, "c_bar"_a);
    nb::class_<Policy>(module, "Policy")
        .def("__init__", &init_policy, "encoding"_a, "actor"_a, "critic"_a, "head"_a, "normalize_obs"_a,
             "normalize_value"_a, "masked"_a, "level"_a = nb::none())
        .def_prop_ro("level", [](const Policy& self) { return self.level().name; })
        .def("load", &load_policy, "actor"_a, "critic"_a.none(), "obs_mean"_a.none(), "obs_var"_a.none(),
             "value_mean"_a, "value_var"_a)
        .def("act", &act_once, "obs"_a, "first"_a.none(), "carry"_a, "next_carry"_a, "mask"_a.none(), "noise"_a,
             "explore"_a, "action"_a.none(), "log_prob"_a.none(), "value"_a.none(), "q"_a.none())
        .def("bind", &bind, "obs"_a, "first"_a.none(), "carry"_a, "mask"_a.none(), "action"_a.none(),
             "log_prob"_a.none(), "value"_a.none(), "q"_a.none(), "environment"_a.none(), "lanes"_a.none(),
             "explore"_a.none(), "bounded"_a, "low"_a, "high"_a, "start"_a, "seed"_a);
    nb::class_<Bound>(module, "BoundPolicy")
        .def("act", &Bound::act, "t"_a, "step"_a)
        .def("value", &Bound::value, "t"_a);
    nb::class_<Update>(module, "Update")
        .def("__init__", &init_update, "encoding"_a, "actor"_a, "critic"_a, "gaussian"_a, "size"_a, "normalize_obs"_a,
             "normalize_value"_a, "clip_param"_a.none(), "value_coef"_a, "entropy_coef"_a, "max_grad_norm"_a,
             "normalize_advantage"_a, "optimizer"_a, "rows"_a, "level"_a = nb::none())
        .def("pack", &pack_rows, "obs"_a, "action"_a, "log_prob"_a, "advantage"_a, "target"_a, "first"_a, "count"_a,
             "obs_mean"_a.none(), "obs_var"_a.none(), "value_mean"_a, "value_var"_a)
        .def("run", &run_update, "actor"_a, "critic"_a, "indices"_a, "weights"_a, "step"_a, "lr"_a, "threads"_a)
        .def("metrics", &metrics_of);
    bind_sequence(module);
    bind_rollout(module);
    bind_replay(module);
}

}  // namespace penstock::kernels
