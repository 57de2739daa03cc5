// The Python classes of the updates of actor-critics from a stream. Checks arrays; holds no mathematics.
#include "bind_update.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "corrected_update.hpp"
#include "shapes.hpp"
#include "update.hpp"

namespace penstock::kernels {
namespace {

using namespace nb::literals;

// steps, stride, gamma, gae_lambda, rho_bar, c_bar, reward_limit
using LanesTuple = std::tuple<std::int64_t, std::int64_t, double, double, double, double, double>;
// mean, deviation
using MomentsTuple = std::tuple<double, double>;
using Encodings = std::vector<EncodingTuple>;
using Layers = std::vector<LayerTuple>;

Graph graph_of(const Encodings& encoding, const Layers& actor, const Layers& critic, bool gaussian, std::int32_t size,
               bool normalize_obs, bool normalize_value) {
    const Head head{gaussian ? HeadKind::gaussian : HeadKind::categorical, size};
    return {encodings_of(encoding), layers_of(actor), layers_of(critic), head, normalize_obs, normalize_value};
}

Loss loss_of(std::optional<double> clip_param, double value_coef, double entropy_coef, double max_grad_norm,
             bool clip_apart, bool normalize_advantage, const OptimizerTuple& optimizer, bool weighed) {
    return {clip_param.value_or(0.0), value_coef, entropy_coef, max_grad_norm, clip_apart, optimizer_of(optimizer),
            normalize_advantage, clip_param.has_value(), weighed};
}

void init_update(Update* self, const Encodings& encoding, const Layers& actor, const Layers& critic, bool gaussian,
                 std::int32_t size, bool normalize_obs, bool normalize_value, std::optional<double> clip_param,
                 double value_coef, double entropy_coef, double max_grad_norm, bool clip_apart, bool normalize_advantage,
                 const OptimizerTuple& optimizer, std::int64_t rows, const std::optional<std::string>& level_name,
                 bool weighed) {
    new (self) Update(graph_of(encoding, actor, critic, gaussian, size, normalize_obs, normalize_value),
                      loss_of(clip_param, value_coef, entropy_coef, max_grad_norm, clip_apart, normalize_advantage, optimizer,
                              weighed),
                      rows, level_or_best(level_name));
}

void init_corrected(CorrectedUpdate* self, const Encodings& encoding, const Layers& actor, const Layers& critic,
                    bool gaussian, std::int32_t size, bool normalize_obs, bool normalize_value,
                    std::optional<double> clip_param, double value_coef, double entropy_coef, double max_grad_norm,
                    bool clip_apart, bool normalize_advantage, const OptimizerTuple& optimizer, const LanesTuple& lanes,
                    std::int64_t rows, const std::optional<std::string>& level_name) {
    const auto& [steps, stride, gamma, gae_lambda, rho_bar, c_bar, reward_limit] = lanes;
    new (self) CorrectedUpdate(
        graph_of(encoding, actor, critic, gaussian, size, normalize_obs, normalize_value),
        loss_of(clip_param, value_coef, entropy_coef, max_grad_norm, clip_apart, normalize_advantage, optimizer, false),
        {steps, stride, gamma, gae_lambda, rho_bar, c_bar, reward_limit}, rows, level_or_best(level_name));
}

using Moments = std::optional<Line<const double>>;

Statistics statistics_of(const Update& self, const Moments& obs_mean, const Moments& obs_var, double value_mean,
                         double value_var) {
    const std::size_t count = self.statistics();
    require((obs_mean ? obs_mean->size() : 0) == count && (obs_var ? obs_var->size() : 0) == count,
            "the observation statistics do not have one number for each feature");
    return {obs_mean ? obs_mean->data() : nullptr, obs_var ? obs_var->data() : nullptr, value_mean, value_var};
}

void check_range(const Update& self, std::int64_t first, std::int64_t count) {
    require(first >= 0 && count >= 0 && first + count <= self.rows(), "rows that are not there cannot be packed");
}

void pack_rows(Update& self, const std::vector<Readable>& obs, const Readable& action, const Line<const float>& log_prob,
               const Line<const float>& advantage, const Line<const float>& target, std::int64_t first,
               std::int64_t count, const Moments& obs_mean, const Moments& obs_var, double value_mean, double value_var,
               const std::optional<Line<const float>>& importance) {
    const Head& head = self.graph().head;
    const std::int64_t rows = self.rows();
    require(importance.has_value() == self.loss().weighed, "rows have weights of importance if, and only if, the loss takes them");
    const std::vector<Rows> fields = encoded_rows(obs, self.graph().encoding, rows);
    const Rows acted = rows_of(log_prob, rows, 1, "log_prob");
    check_range(self, first, count);
    // The plain policy gradient has no ratio to the policy that acted.
    self.pack({fields.data(), action_rows(action, head.gaussian(), head.size, rows), self.loss().clipped ? acted : Rows{},
               rows_of(advantage, rows, 1, "advantage"), rows_of(target, rows, 1, "target"),
               importance ? rows_of(*importance, rows, 1, "importance") : Rows{}},
              statistics_of(self, obs_mean, obs_var, value_mean, value_var), first, count);
}

void pack_lanes(CorrectedUpdate& self, const std::vector<Readable>& obs, const Readable& action,
                const Line<const float>& log_prob, const Line<const float>& reward, const Line<const bool>& terminated,
                const Line<const bool>& truncated, const Line<const bool>& valid, const Line<const float>& bootstrap,
                const Line<const float>& size, std::int64_t first, std::int64_t count, const Moments& obs_mean,
                const Moments& obs_var, double value_mean, double value_var) {
    const Head& head = self.graph().head;
    const std::int64_t rows = self.rows();
    const std::vector<Rows> fields = encoded_rows(obs, self.graph().encoding, rows);
    check_range(self, first, count);
    self.pack({fields.data(), action_rows(action, head.gaussian(), head.size, rows), {}, {}, {}},
              {rows_of(log_prob, rows, 1, "log_prob"), rows_of(reward, rows, 1, "reward"),
               rows_of(terminated, rows, 1, "terminated"), rows_of(truncated, rows, 1, "truncated"),
               rows_of(valid, rows, 1, "valid"), rows_of(bootstrap, rows, 1, "bootstrap"), rows_of(size, rows, 1, "size")},
              statistics_of(self, obs_mean, obs_var, value_mean, value_var), first, count);
}

// Parameters and what the optimizer remembers: m, v and the sum, as far as it keeps them.
Vectors vectors_of(const std::vector<Line<float>>& arrays, std::int64_t size, const Optimizer& optimizer) {
    std::size_t kept = 1;
    const auto place = [&](const char* name) { return name == nullptr ? 0 : kept++; };
    const std::size_t m = place(optimizer.m_name()), v = place(optimizer.v_name()), sum = place(optimizer.sum_name());
    require(arrays.size() == kept, "a network has parameters and what its optimizer remembers");
    for (const auto& array : arrays)
        require(static_cast<std::int64_t>(array.size()) == size, "a vector does not have its network's length");
    const auto at = [&](std::size_t number) { return number == 0 ? nullptr : arrays[number].data(); };
    return {arrays[0].data(), at(m), at(v), at(sum)};
}

template <typename Indices, typename Weights>
Minibatches minibatches_of(const Indices& indices, const Weights& weights, std::size_t count, std::size_t size, int threads) {
    require(weights.size() == count * size && indices.size() == count * size, "weights must have the indices' shape");
    require(threads == 1 || threads == 2, "an update runs on one or two threads");
    return {indices.data(), weights.data(), static_cast<std::int64_t>(count), static_cast<std::int64_t>(size)};
}

std::int64_t run_update(Update& self, const std::vector<Line<float>>& actor, const std::vector<Line<float>>& critic,
                        const Plane<const std::int64_t>& indices, const Plane<const float>& weights, std::int64_t step,
                        double lr, int threads) {
    const Vectors actor_vectors = vectors_of(actor, self.actor_size(), self.loss().optimizer);
    const Vectors critic_vectors = vectors_of(critic, self.critic_size(), self.loss().optimizer);
    require(indices.shape(0) == weights.shape(0), "weights must have the indices' shape");
    const Minibatches minibatches = minibatches_of(indices, weights, indices.shape(0), indices.shape(1), threads);
    const nb::gil_scoped_release released;
    self.load(actor_vectors, critic_vectors);
    const std::int64_t after = self.run(minibatches, step, lr, threads);
    self.store(actor_vectors, critic_vectors);
    return after;
}

// Checks that both vectors have their networks' lengths.
template <typename Vector>
void check_lengths(const Update& self, const Vector& actor, const Vector& critic) {
    require(static_cast<std::int64_t>(actor.size()) == self.actor_size() &&
                static_cast<std::int64_t>(critic.size()) == self.critic_size(),
            "a vector does not have its network's length");
}

double compute_gradients(Update& self, const Line<float>& actor, const Line<float>& critic,
                         const Line<const std::int64_t>& indices, const Line<const float>& weights,
                         const std::optional<MomentsTuple>& whole, const Line<float>& actor_gradient,
                         const Line<float>& critic_gradient, int threads) {
    check_lengths(self, actor, critic);
    check_lengths(self, actor_gradient, critic_gradient);
    const Minibatches one = minibatches_of(indices, weights, 1, indices.size(), threads);
    std::optional<AdvantageMoments> moments;
    if (whole) moments = AdvantageMoments{std::get<0>(*whole), std::get<1>(*whole)};
    const nb::gil_scoped_release released;
    self.load({actor.data(), nullptr, nullptr, nullptr}, {critic.data(), nullptr, nullptr, nullptr});
    const double weight = self.compute_gradients(one, moments, threads);
    self.store_gradients(actor_gradient.data(), critic_gradient.data());
    return weight;
}

void descend_by(Update& self, const std::vector<Line<float>>& actor, const std::vector<Line<float>>& critic,
                const Line<const float>& actor_gradient, const Line<const float>& critic_gradient, std::int64_t step,
                double lr) {
    const Vectors actor_vectors = vectors_of(actor, self.actor_size(), self.loss().optimizer);
    const Vectors critic_vectors = vectors_of(critic, self.critic_size(), self.loss().optimizer);
    check_lengths(self, actor_gradient, critic_gradient);
    const nb::gil_scoped_release released;
    self.load(actor_vectors, critic_vectors);
    self.descend(actor_gradient.data(), critic_gradient.data(), step, lr);
    self.store(actor_vectors, critic_vectors);
}

using Sum = std::pair<const char*, double Metrics::*>;

// The means of all updates' sums, and of some that only this one has.
nb::dict means_of(const Metrics& sums, std::initializer_list<Sum> own) {
    nb::dict means;
    if (sums.seen == 0) return means;
    const auto count = static_cast<double>(std::max<std::int64_t>(1, sums.count));
    const auto mean = [&](const Sum& sum) { means[sum.first] = sums.*sum.second / count; };
    for (const Sum& sum : {Sum{"policy_loss", &Metrics::policy_loss}, Sum{"value_loss", &Metrics::value_loss},
                           Sum{"entropy", &Metrics::entropy}, Sum{"grad_norm", &Metrics::grad_norm}})
        mean(sum);
    for (const Sum& sum : own) mean(sum);
    return means;
}

nb::dict metrics_of(Update& self) {
    const Metrics sums = self.take_metrics();
    if (!self.loss().clipped) return means_of(sums, {});
    return means_of(sums, {{"approx_kl", &Metrics::approx_kl}, {"clip_fraction", &Metrics::clip_fraction}});
}

nb::dict corrected_metrics_of(CorrectedUpdate& self) { return means_of(self.take_metrics(), {{"rho", &Metrics::rho}}); }

}  // namespace

void bind_update(nb::module_& module) {
    nb::class_<Update>(module, "Update")
        .def("__init__", &init_update, "encoding"_a, "actor"_a, "critic"_a, "gaussian"_a, "size"_a, "normalize_obs"_a,
             "normalize_value"_a, "clip_param"_a.none(), "value_coef"_a, "entropy_coef"_a, "max_grad_norm"_a,
             "clip_apart"_a,
             "normalize_advantage"_a, "optimizer"_a, "rows"_a, "level"_a = nb::none(), "weighed"_a = false)
        .def("pack", &pack_rows, "obs"_a, "action"_a, "log_prob"_a, "advantage"_a, "target"_a, "first"_a, "count"_a,
             "obs_mean"_a.none(), "obs_var"_a.none(), "value_mean"_a, "value_var"_a, "importance"_a = nb::none())
        .def("run", &run_update, array("actor"), array("critic"), "indices"_a, "weights"_a, "step"_a, "lr"_a, "threads"_a)
        .def("compute_gradients", &compute_gradients, "actor"_a, "critic"_a, "indices"_a, "weights"_a, "whole"_a.none(),
             array("actor_gradient"), array("critic_gradient"), "threads"_a)
        .def("descend", &descend_by, array("actor"), array("critic"), "actor_gradient"_a, "critic_gradient"_a, "step"_a, "lr"_a)
        .def("metrics", &metrics_of);
    nb::class_<CorrectedUpdate, Update>(module, "CorrectedUpdate")
        .def("__init__", &init_corrected, "encoding"_a, "actor"_a, "critic"_a, "gaussian"_a, "size"_a, "normalize_obs"_a,
             "normalize_value"_a, "clip_param"_a.none(), "value_coef"_a, "entropy_coef"_a, "max_grad_norm"_a,
             "clip_apart"_a,
             "normalize_advantage"_a, "optimizer"_a, "lanes"_a, "rows"_a, "level"_a = nb::none())
        .def("pack", &pack_lanes, "obs"_a, "action"_a, "log_prob"_a, "reward"_a, "terminated"_a, "truncated"_a, "valid"_a,
             "bootstrap"_a, "size"_a, "first"_a, "count"_a, "obs_mean"_a.none(), "obs_var"_a.none(), "value_mean"_a,
             "value_var"_a)
        .def("metrics", &corrected_metrics_of);
}

}  // namespace penstock::kernels
