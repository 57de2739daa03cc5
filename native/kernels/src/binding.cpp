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
#include "bind_update.hpp"
#include "bound.hpp"
#include "gae.hpp"
#include "policy.hpp"
#include "shapes.hpp"

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

void load_policy(Policy& self, const Line<const float>& actor, const std::optional<Line<const float>>& critic,
                 const std::optional<Line<const double>>& obs_mean, const std::optional<Line<const double>>& obs_var, double value_mean,
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
              const Flat<const float>& noise, const Line<const float>& explore, std::optional<Writable> action,
              std::optional<Writable> log_prob, std::optional<Writable> value, std::optional<Writable> q) {
    Bound bound(nb::borrow(self), nb::cast<Policy&>(self),
                {std::move(obs), std::move(first), std::move(carry), std::move(next_carry), std::move(mask),
                 std::move(action), std::move(log_prob), std::move(value), std::move(q), {}, {}, {}},
                false, {}, 0);
    require(static_cast<std::int64_t>(noise.size()) == bound.lanes() * bound.noise_size(), "noise must be [n, size]");
    require(static_cast<std::int64_t>(explore.shape(0)) == bound.lanes(), "explore must be [n]");
    bound.act_on(0, noise.data(), explore.data());
}

void judge_given(Policy& self, const std::vector<Readable>& obs, const Readable& action, const Line<float>& log_prob,
                 const Line<float>& value) {
    const Graph& graph = self.graph();
    require(graph.head.gives_value() && self.carried().empty() && !graph.masked,
            "actions are judged by a policy with a value, without memory and without a mask");
    const auto count = static_cast<std::int64_t>(log_prob.size());
    const std::vector<Rows> fields = encoded_rows(obs, graph.encoding, count);
    const Rows given = action_rows(action, graph.head.gaussian(), graph.head.size, count);
    const Rows log_probs = rows_of(log_prob, count, 1, "log_prob");
    const Rows values = rows_of(value, count, 1, "value");
    const nb::gil_scoped_release released;
    self.judge(fields.data(), given, log_probs, values, count);
}

Bound* bind(nb::handle_t<Policy> self, std::vector<Readable> obs, std::optional<Readable> first,
            const std::vector<Writable>& carry, std::optional<Readable> mask, std::optional<Writable> action,
            std::optional<Writable> log_prob, std::optional<Writable> value, std::optional<Writable> q,
            std::optional<Writable> environment, std::optional<Flat<const std::int64_t, nb::ndim<1>>> lanes,
            std::optional<Line<const float>> explore, bool bounded, std::vector<double> low, std::vector<double> high,
            std::int64_t start, std::uint64_t seed) {
    return new Bound(nb::borrow(self), nb::cast<Policy&>(self),
                     {std::move(obs), std::move(first), {carry.begin(), carry.end()}, carry, std::move(mask),
                      std::move(action), std::move(log_prob), std::move(value), std::move(q), std::move(environment),
                      std::move(lanes), std::move(explore)},
                     true, {bounded, std::move(low), std::move(high), start}, seed);
}

void generate_noise(const std::string& distribution, std::uint64_t seed, const Flat<const std::int64_t, nb::ndim<1>>& lanes,
                std::int64_t step, const Flat<float, nb::ndim<2>>& out, const std::optional<std::string>& level_name) {
    require(out.shape(0) == lanes.shape(0), "out must be [lanes, size]");
    const Noise noise{seed, static_cast<std::uint64_t>(step), lanes.data(), lanes.shape(0), out.shape(1),
                      distribution_of(distribution)};
    level_or_best(level_name).noise(noise, out.data());
}

void apply_elementwise(const std::string& name, const Flat<float>& values, const std::optional<std::string>& level_name) {
    level_or_best(level_name).elementwise(elementwise_of(name), values.data(), values.size());
}

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

std::vector<std::string> level_names() {
    std::vector<std::string> names;
    for (const Level* known : levels()) names.emplace_back(known->name);
    return names;
}

}  // namespace

NB_MODULE(_native, module) {
    module.def("levels", &level_names, "Instruction-set levels that this processor runs, slowest first.");
    module.def("noise", &generate_noise, "distribution"_a, "seed"_a, "lanes"_a, "step"_a, array("out"),
               "level"_a = nb::none());
    module.def("elementwise", &apply_elementwise, "name"_a, array("values"), "level"_a = nb::none());
    module.def("advantages", &advantages_of, "reward"_a, "value"_a, "terminated"_a, "truncated"_a, "valid"_a,
               "final_count"_a, "final_t"_a, "final_lane"_a, "final_value"_a, "same_step"_a, "gamma"_a, "gae_lambda"_a,
               array("advantage"), array("target"), "log_ratio"_a.none(), "rho_bar"_a, "c_bar"_a);
    nb::class_<Policy>(module, "Policy")
        .def("__init__", &init_policy, "encoding"_a, "actor"_a, "critic"_a, "head"_a, "normalize_obs"_a,
             "normalize_value"_a, "masked"_a, "level"_a = nb::none())
        .def_prop_ro("level", [](const Policy& self) { return self.level().name; })
        .def("load", &load_policy, "actor"_a, "critic"_a.none(), "obs_mean"_a.none(), "obs_var"_a.none(),
             "value_mean"_a, "value_var"_a)
        .def("act", &act_once, "obs"_a, "first"_a.none(), "carry"_a, "next_carry"_a, "mask"_a.none(), "noise"_a,
             "explore"_a, "action"_a.none(), "log_prob"_a.none(), "value"_a.none(), "q"_a.none())
        .def("judge", &judge_given, "obs"_a, "action"_a, array("log_prob"), array("value"))
        .def("bind", &bind, "obs"_a, "first"_a.none(), "carry"_a, "mask"_a.none(), "action"_a.none(),
             "log_prob"_a.none(), "value"_a.none(), "q"_a.none(), "environment"_a.none(), "lanes"_a.none(),
             "explore"_a.none(), "bounded"_a, "low"_a, "high"_a, "start"_a, "seed"_a);
    nb::class_<Bound>(module, "BoundPolicy")
        .def("act", &Bound::act, "t"_a, "step"_a)
        .def("value", &Bound::value, "t"_a);
    bind_sequence(module);
    bind_rollout(module);
    bind_replay(module);
    bind_update(module);
}

}  // namespace penstock::kernels
