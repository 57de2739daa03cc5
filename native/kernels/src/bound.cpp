#include "bound.hpp"

namespace penstock::kernels {

Bound::Bound(nb::object owner, Policy& policy, Arrays arrays, bool batched, ActionMap map, std::uint64_t seed)
    : owner_(std::move(owner)), policy_(policy), arrays_(std::move(arrays)), batched_(batched), map_(std::move(map)),
      seed_(seed) {
    bind_obs();
    bind_carry();
    bind_mask();
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
        require((map_.low.empty() && !map_.bounded) || map_.low.size() == static_cast<std::size_t>(head.size),
                "the bounds must have one number for each action element");
        require(map_.high.size() == map_.low.size(),
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

void Bound::bind_carry() {
    const std::size_t arrays = policy_.carried().size();
    // Unbound calls pass here each time; the texts below would cost them more than the checks.
    if (arrays == 0 && arrays_.carry.empty() && arrays_.next_carry.empty() && !arrays_.first) return;
    require(arrays_.carry.size() == arrays, "the carry has another number of arrays than the policy's");
    require(arrays_.next_carry.empty() || arrays_.next_carry.size() == arrays, "the next carry is wanted whole or not at all");
    require(arrays_.first.has_value() == (arrays > 0), "`first` belongs to a policy with a carry");
    carry_ = carried(arrays_.carry);
    next_carry_ = carried(arrays_.next_carry);
    if (!arrays_.first) return;
    first_ = field_of(*arrays_.first, batched_, "first");
    require(first_.dtype == Dtype::boolean && first_.size == 1 && first_.lanes == lanes_ && first_.rows == rows_,
            "first must be bool, one for each lane of the observations' rows");
}

void Bound::bind_mask() {
    if (!policy_.graph().masked && !arrays_.mask) return;
    require(policy_.graph().masked && arrays_.mask, "an action mask belongs to a policy that is laid out with one");
    mask_ = field_of(*arrays_.mask, batched_, "the action mask");
    require(mask_.dtype == Dtype::boolean || mask_.dtype == Dtype::u8 || mask_.dtype == Dtype::i8,
            "the action mask must be bool, uint8 or int8");
    require(mask_.size == policy_.graph().head.size && mask_.lanes == lanes_ && mask_.rows == rows_,
            "the action mask must have one number for each action, in the observations' rows");
}

template <typename Array>
std::vector<Rows> Bound::carried(const std::vector<Array>& arrays) const {
    const std::vector<std::int32_t>& sizes = policy_.carried();
    std::vector<Rows> found;
    for (std::size_t i = 0; i < arrays.size(); ++i) {
        const std::string name = "array " + std::to_string(i) + " of the carry";
        const Field field = field_of(arrays[i], false, name);
        require(field.dtype == Dtype::f32 && arrays[i].ndim() == 2 && field.lanes == lanes_ && field.size == sizes[i],
                name + " must be float32 [" + std::to_string(lanes_) + ", " + std::to_string(sizes[i]) + "]");
        found.push_back(field.at(0));
    }
    return found;
}

Field Bound::output(const std::optional<Writable>& array, Dtype dtype, std::int64_t size, const char* name) {
    if (!array) return {};
    Field field = field_of(*array, batched_, name);
    require(field.dtype == dtype, std::string(name) + " has the wrong dtype");
    require(field.size == size && field.lanes == lanes_ && field.rows == rows_,
            std::string(name) + " does not have the shape of the observations' rows");
    return field;
}

Inputs Bound::inputs(std::int64_t t, const float* noise, const float* explore) {
    if (t < 0 || t >= rows_) throw std::out_of_range("row " + std::to_string(t) + " of " + std::to_string(rows_));
    for (std::size_t i = 0; i < obs_.size(); ++i) obs_rows_[i] = obs_[i].at(t);
    const Rows* const next = next_carry_.empty() ? nullptr : next_carry_.data();
    return {obs_rows_.data(), noise, explore, {first_.at(t), carry_.data(), next}, mask_.at(t)};
}

void Bound::act(std::int64_t t, std::int64_t step) {
    require(arrays_.lanes.has_value(), "bind with lanes to generate noise");
    const Noise noise{seed_, static_cast<std::uint64_t>(step), arrays_.lanes->data(), static_cast<std::size_t>(lanes_),
                      static_cast<std::size_t>(noise_size()), policy_.graph().head.noise()};
    policy_.level().noise(noise, noise_.data());
    act_on(t, noise_.data(), arrays_.explore ? arrays_.explore->data() : explore_.data());
}

void Bound::act_on(std::int64_t t, const float* noise, const float* explore) {
    const Inputs in = inputs(t, noise, explore);
    if (action_.data == nullptr && log_prob_.data == nullptr && q_.data == nullptr && next_carry_.empty()) {
        if (value_.data != nullptr) policy_.values(in, value_.at(t), lanes_);
        return;
    }
    policy_.act(in, {action_.at(t), log_prob_.at(t), value_.at(t), q_.at(t), environment_.at(0), &map_}, lanes_);
}

void Bound::value(std::int64_t t) {
    require(value_.data != nullptr, "bind with value to compute it");
    policy_.values(inputs(t, nullptr, nullptr), value_.at(t), lanes_);
}

}  // namespace penstock::kernels
