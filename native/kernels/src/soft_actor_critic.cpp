#include "soft_actor_critic.hpp"

#include <utility>

namespace penstock::kernels {

SoftActorCritic::SoftActorCritic(std::vector<Encoding> encoding, const ActorCriticShapes& shapes,
                                 const SoftSettings& settings, std::int64_t policy_delay, NoiseKeys keys, const Optimizer& optimizer,
                                 const Level& level)
    : ActorCritics(std::move(encoding), shapes, std::move(keys), optimizer, level), tau_(settings.tau),
      soft_(*this, settings, policy_delay) {}

void SoftActorCritic::critic_gradient(const Part& part, int side, Workspace& work) {
    const Squashed& chosen = soft_.choose(minibatch_.next, actor_.weights(0), kCritic, part, work).sample;
    smallest_target(chosen.action(), part, work);
    const float temperature = soft_.temperature();
    for (std::int32_t r = 0; r < part.rows; ++r) {
        const std::int64_t row = part.row + r;
        float& target = work.target.data()[r];
        target = minibatch_.reward[row] + minibatch_.discount[row] * (target - temperature * chosen.log_prob(r));
    }
    squared_errors(part, side, 0.5F, work);
}

void SoftActorCritic::gradients(std::size_t phase, Sides& sides) {
    if (phase == kCritic) return sides.both([&](int side) { critic_gradients(side); });
    soft_.gradients(sides);
}

void SoftActorCritic::descend(std::size_t phase, Sides& sides) {
    if (phase == kCritic) return descend_on(critic_, sides, tau_);
    soft_.descend(sides, 0.0);
}

}  // namespace penstock::kernels
