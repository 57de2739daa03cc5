#include "bound.hpp"

namespace penstock::kernels {

Bound::Bound(nb::object owner, Policy& policy, Arrays arrays, bool batched, ActionMap map, std::uint64_t seed)
    : owner_(std::move(owner)), policy_(policy), arrays_(std::move(arrays)), batched_(batched), map_(std::move(map)),
      seed_(seed) {
    bind_obs();
    const Head& head = policy.graph().head;
    require(head.gives_value() || !(arrays_.log_prob || arrays_.value), "this policy gives neither log_prob nor value");
    require(head.gives_q() || !arrays_.q, "this policy gives no q");
    action_ = output(arrays_.action, head.discrete() ? Dtype::i64 : Dtype::f32, head.discrete() ? 1 : head.size, "action");
    log_prob_ = output(arrays_.log_prob, Dtype::f32, 1, "log_prob");
    value_ = output(arrays_.value, Dtype::f32, 1, "value");
    q_ = output(arrays_.q, Dtype::f32, head.size, "q");
    if (arrays_.environment) {
        environment_ = field_of(*arrays_.environment, false, "environment");
        require(environment_.lanes == lanes_ && environment_.size == action_.size && action_.data != nullptr,
                "environment must be [lanes, ...] of the action's size, beside an action");
        require(!map_.bounded || (map_.low.size() == static_cast<std::size_t>(head.size) && map_.high.size() == map_.low.size()),
                "the bounds must have one number for each action element");
    }
    require(!arrays_.lanes || static_cast<std::int64_t>(arrays_.lanes->shape(0)) == lanes_, "lanes must be [lanes]");
    require(!arrays_.explore || static_cast<std::int64_t>(arrays_.explore->shape(0)) == lanes_, "explore must be [lanes]");
    noise_.assign(static_cast<std::size_t>(lanes_ * head.noise_size()), 0.0F);
    explore_.assign(static_cast<std::size_t>(lanes_), 1.0F);
}

void Bound::bind_obs() {
    const auto& encoding = policy_.graph().encoding;
    require(arrays_.obs.size() == encoding.size() && !encoding.empty(), "there must be one observation array for each encoding");
    for (std::size_t i = 0; i < encoding.size(); ++i) {
        const std::string name = "observation " + std::to_string(i);
        obs_.push_back(field_of(arrays_.obs[i], batched_, name));
        require(obs_[i].size == (encoding[i].one_hot ? 1 : encoding[i].size), name + " does not have the encoding's size");
        require(obs_[i].rows == obs_[0].rows && obs_[i].lanes == obs_[0].lanes, name + " has other rows or lanes");
    }
    rows_ = obs_[0].rows;
    lanes_ = obs_[0].lanes;
    obs_rows_.resize(obs_.size());
}

Field Bound::output(const std::optional<Writable>& array, Dtype dtype, std::int64_t size, const char* name) {
    if (!array) return {};
    Field field = field_of(*array, batched_, name);
    require(field.dtype == dtype, std::string(name) + " has the wrong dtype");
    require(field.size == size && field.lanes == lanes_ && field.rows == rows_,
            std::string(name) + " does not have the shape of the observations' rows");
    return field;
}

const Rows* Bound::rows_of_obs(std::int64_t t) {
    if (t < 0 || t >= rows_) throw std::out_of_range("row " + std::to_string(t) + " of " + std::to_string(rows_));
    for (std::size_t i = 0; i < obs_.size(); ++i) obs_rows_[i] = obs_[i].at(t);
    return obs_rows_.data();
}

void Bound::act(std::int64_t t, std::int64_t step) {
    require(arrays_.lanes.has_value(), "bind with lanes to draw noise");
    const Noise noise{seed_, static_cast<std::uint64_t>(step), arrays_.lanes->data(), static_cast<std::size_t>(lanes_),
                      static_cast<std::size_t>(noise_size()), policy_.graph().head.noise()};
    policy_.level().noise(noise, noise_.data());
    act_on(t, noise_.data(), arrays_.explore ? arrays_.explore->data() : explore_.data());
}

void Bound::act_on(std::int64_t t, const float* noise, const float* explore) {
    const Rows* obs = rows_of_obs(t);
    if (action_.data == nullptr && log_prob_.data == nullptr && q_.data == nullptr) {
        if (value_.data != nullptr) policy_.values(obs, value_.at(t), lanes_);
        return;
    }
    const Outputs out{action_.at(t), log_prob_.at(t), value_.at(t), q_.at(t), environment_.at(0), &map_};
    policy_.act(obs, noise, explore, out, lanes_);
}

void Bound::value(std::int64_t t) {
    require(value_.data != nullptr, "bind with value to compute it");
    const Rows* obs = rows_of_obs(t);
    policy_.values(obs, value_.at(t), lanes_);
}

}  // namespace penstock::kernels
