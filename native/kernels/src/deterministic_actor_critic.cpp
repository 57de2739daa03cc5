#include "deterministic_actor_critic.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace penstock::kernels {

DeterministicActorCritic::DeterministicActorCritic(std::vector<Encoding> encoding, const ActorCriticShapes& shapes,
                                                   const DeterministicSettings& settings, NoiseKeys keys, const Optimizer& optimizer,
                                                   const Level& level)
    : ActorCritics(std::move(encoding), shapes, std::move(keys), optimizer, level), settings_(settings) {
    phases_.push_back({"actor", settings.policy_delay, {&actor_}});
    metrics_.push_back({"policy_loss", kActor});
}

void DeterministicActorCritic::act(const Weights& weights, const Part& part, Workspace& work) const {
    const float* outputs = work.actor.forward(weights, work.actor_x.data(), part.rows);
    const std::ptrdiff_t stride = actor_.stack().output_stride();
    for (std::int32_t r = 0; r < part.rows; ++r)
        std::memcpy(work.action.data() + r * action_size_, outputs + r * stride,
                    static_cast<std::size_t>(action_size_) * sizeof(float));
    level_.elementwise(Elementwise::tanh, work.action.data(), static_cast<std::size_t>(part.rows * action_size_));
}

void DeterministicActorCritic::choose_next(const Part& own, int side) {
    Workspace& work = *work_[side];
    encode(minibatch_.next, own, work.actor_x.data(), actor_.stack().input_stride());
    act(actor_.target(0), own, work);
    if (settings_.smoothing > 0.0) {
        const auto deviation = static_cast<float>(settings_.smoothing);
        const auto most = static_cast<float>(settings_.smoothing_clip);
        noise(kCritic, own, action_size_, work.noise.data());
        for (std::int32_t i = 0; i < own.rows * action_size_; ++i) {
            const float moved = work.action.data()[i] + std::clamp(deviation * work.noise.data()[i], -most, most);
            work.action.data()[i] = std::clamp(moved, -1.0F, 1.0F);
        }
    }
    critic_inputs(work.actor_x.data(), work.action.data(), own.rows, work);
}

void DeterministicActorCritic::targets(const Part& own, int side) {
    Workspace& work = *work_[side];
    for (std::int32_t r = 0; r < own.rows; ++r) {
        const std::int64_t row = own.row + r;
        work.target.data()[r] = minibatch_.reward[row] + minibatch_.discount[row] * smallest_value(work, r);
    }
}

void DeterministicActorCritic::errors(int, int rows_of, const Part& part, int side, const float* outputs, float* d) {
    squared_errors(rows_of, part, side, 1.0F, outputs, d);
}

void DeterministicActorCritic::actor_gradient(const Part& part, int side, Workspace& work) {
    encode(minibatch_.obs, part, work.actor_x.data(), actor_.stack().input_stride());
    act(actor_.weights(0), part, work);
    critic_inputs(work.actor_x.data(), work.action.data(), part.rows, work);
    Pass& first = work.critic;
    const float* value = first.forward(critic_.weights(0), work.critic_x.data(), part.rows);
    const std::ptrdiff_t stride = critic_.stack().output_stride();
    float* of_value = first.output_gradient();
    std::memset(of_value, 0, static_cast<std::size_t>(part.rows * stride) * sizeof(float));
    double loss = 0.0;
    for (std::int32_t r = 0; r < part.rows; ++r) {
        const float of_row = share(part.row + r);
        loss -= static_cast<double>(of_row * value[r * stride]);
        of_value[r * stride] = -of_row;
    }
    float* of_action = work.of_action.data();
    first.backward_to_inputs(critic_.weights(0), part.rows, encoder_.features(), action_size_, of_action);
    float* d = work.actor.output_gradient();
    const std::ptrdiff_t outputs = actor_.stack().output_stride();
    std::memset(d, 0, static_cast<std::size_t>(part.rows * outputs) * sizeof(float));
    for (std::int32_t r = 0; r < part.rows; ++r)
        for (std::int32_t k = 0; k < action_size_; ++k) {
            const float action = work.action.data()[r * action_size_ + k];
            d[r * outputs + k] = of_action[r * action_size_ + k] * (1.0F - action * action);
        }
    work.actor.backward(actor_.weights(0), work.actor_x.data(), part.rows, actor_.gradient(side), part.first);
    measure(side, kPolicyLoss, loss);
}

void DeterministicActorCritic::gradients(std::size_t phase, Sides& sides) {
    if (phase == kCritic) return critic_gradients(sides);
    sides.both([&](int side) { each_part(side, [&](const Part& part) { actor_gradient(part, side, *work_[side]); }); });
}

void DeterministicActorCritic::descend(std::size_t phase, Sides& sides) {
    if (phase == kCritic) return descend_on(critic_, sides);
    descend_on(actor_, sides, settings_.tau);
    sides.both([&](int side) { critic_.follow(side, settings_.tau); });
}

}  // namespace penstock::kernels
