#include "soft_actor_critic.hpp"

#include <utility>

namespace penstock::kernels {

SoftActorCritic::SoftActorCritic(std::vector<Encoding> encoding, const ActorCriticShapes& shapes,
                                 const SoftSettings& settings, std::int64_t policy_delay, NoiseKeys keys, const Optimizer& optimizer,
                                 const Level& level)
    : ActorCritics(std::move(encoding), shapes, std::move(keys), optimizer, level), tau_(settings.tau),
      soft_(*this, settings, policy_delay) {}

void SoftActorCritic::choose_next(const Part& own, int side) { soft_.choose(minibatch_.next, actor_.weights(0), kCritic, own, side); }

void SoftActorCritic::targets(const Part& own, int side) {
    Workspace& work = *work_[side];
    const float temperature = soft_.temperature();
    for (std::int32_t r = 0; r < own.rows; ++r) {
        const std::int64_t row = own.row + r;
        const float following = smallest_value(work, r) - temperature * soft_.chosen(side).log_prob(r);
        work.target.data()[r] = minibatch_.reward[row] + minibatch_.discount[row] * following;
    }
}

void SoftActorCritic::errors(int, int rows_of, const Part& part, int side, const float* outputs, float* d) {
    squared_errors(rows_of, part, side, 0.5F, outputs, d);
}

void SoftActorCritic::gradients(std::size_t phase, Sides& sides) {
    if (phase == kCritic) return critic_gradients(sides);
    soft_.gradients(sides);
}

void SoftActorCritic::descend(std::size_t phase, Sides& sides) {
    if (phase == kCritic) return descend_on(critic_, sides, tau_);
    soft_.descend(sides, 0.0);
}

}  // namespace penstock::kernels
