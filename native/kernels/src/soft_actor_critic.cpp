#include "soft_actor_critic.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace penstock::kernels {

SoftActorCritic::SoftActorCritic(std::vector<Encoding> encoding, const ActorCriticShapes& shapes,
                                 const SoftSettings& settings, NoiseKeys keys, double epsilon, const Level& level)
    : ActorCritics(std::move(encoding), shapes, 0.5, std::move(keys), epsilon, level), settings_(settings),
      log_alpha_("log_alpha", 1, level) {
    add(log_alpha_);
    phases_ = {{"critic", 1, {&critic_}}, {"actor", 1, {&actor_}}};
    if (settings.learns_temperature) phases_[kActor].learned.push_back(&log_alpha_);
    metrics_.insert(metrics_.end(), {{"policy_loss", kActor}, {"entropy", kActor}, {"temperature", kActor}});
    for (auto& made : squashed_)
        made = std::make_unique<Squashed>(shapes.action, settings.log_std_min, settings.log_std_max,
                                          actor_.stack().output_stride(), level);
}

float SoftActorCritic::alpha() const { return std::exp(log_alpha_.numbers()[0]); }

void SoftActorCritic::targets(const Part& part, Workspace& work) {
    Squashed& chosen = squashed(work);
    encode(minibatch_.next, part, work.actor_x.data(), actor_.stack().input_stride());
    noise(kCritic, part, action_size_, work.noise.data());
    chosen.sample(work.actor.forward(actor_.weights(0), work.actor_x.data(), part.rows), work.noise.data(), part.rows);
    smallest_target(chosen.action(), part, work);
    const float temperature = alpha();
    for (std::int32_t r = 0; r < part.rows; ++r) {
        const std::int64_t row = part.row + r;
        float& target = work.target.data()[r];
        target = minibatch_.reward[row] + minibatch_.discount[row] * (target - temperature * chosen.log_prob(r));
    }
}

void SoftActorCritic::actor_gradient(const Part& part, int side, Workspace& work) {
    Squashed& chosen = squashed(work);
    encode(minibatch_.obs, part, work.actor_x.data(), actor_.stack().input_stride());
    noise(kActor, part, action_size_, work.noise.data());
    const float* outputs = work.actor.forward(actor_.weights(0), work.actor_x.data(), part.rows);
    chosen.sample(outputs, work.noise.data(), part.rows);
    critic_inputs(work.actor_x.data(), chosen.action(), part.rows, work);
    for (int c = 0; c < critic_.count(); ++c)
        work.values[static_cast<std::size_t>(c)] =
            work.critics[static_cast<std::size_t>(c)].forward(critic_.weights(c), work.critic_x.data(), part.rows);
    const std::ptrdiff_t stride = critic_.stack().output_stride();
    for (Pass& pass : work.critics)
        std::memset(pass.output_gradient(), 0, static_cast<std::size_t>(part.rows * stride) * sizeof(float));
    const float temperature = alpha();
    double loss = 0.0, entropy = 0.0;
    for (std::int32_t r = 0; r < part.rows; ++r) {
        float least = work.values[0][r * stride];
        for (const float* value : work.values) least = smaller(value[r * stride], least);
        const auto smallest = std::ranges::count_if(work.values, [&](const float* value) { return value[r * stride] == least; });
        const float of_row = share(part.row + r);
        loss += static_cast<double>(of_row * (temperature * chosen.log_prob(r) - least));
        entropy -= static_cast<double>(of_row * chosen.log_prob(r));
        // Critics with equal smallest values share the gradient.
        for (std::size_t c = 0; c < work.values.size(); ++c)
            if (work.values[c][r * stride] == least)
                work.critics[c].output_gradient()[r * stride] = -of_row / static_cast<float>(smallest);
    }
    std::memset(work.of_action.data(), 0, static_cast<std::size_t>(part.rows * action_size_) * sizeof(float));
    const std::ptrdiff_t columns = critic_.stack().input_stride();
    for (int c = 0; c < critic_.count(); ++c) {
        work.critics[static_cast<std::size_t>(c)].backward_to_inputs(critic_.weights(c), part.rows, work.critic_dx.data());
        for (std::int32_t r = 0; r < part.rows; ++r)
            for (std::int32_t k = 0; k < action_size_; ++k)
                work.of_action.data()[r * action_size_ + k] += work.critic_dx.data()[r * columns + encoder_.features() + k];
    }
    float* d = work.actor.output_gradient();
    std::memset(d, 0, static_cast<std::size_t>(part.rows * actor_.stack().output_stride()) * sizeof(float));
    for (std::int32_t r = 0; r < part.rows; ++r)
        chosen.gradient(r, outputs, work.noise.data(), work.of_action.data() + r * action_size_,
                        share(part.row + r) * temperature, d);
    work.actor.backward(actor_.weights(0), work.actor_x.data(), part.rows, actor_.gradient(side), part.first);
    measure(side, kPolicyLoss, loss);
    measure(side, kEntropy, entropy);
    entropy_[side] += entropy;
}

void SoftActorCritic::gradients(std::size_t phase, Sides& sides) {
    if (phase == kCritic) return critic_gradients(sides);
    sides.both([&](int side) {
        entropy_[side] = 0.0;
        if (!has_rows(side)) actor_.clear(side);
        each_part(side, [&](const Part& part) { actor_gradient(part, side, *work_[side]); });
    });
    sides.once([&] {
        measure(0, kTemperature, static_cast<double>(alpha()));
        log_alpha_.gradient(0)[0] = static_cast<float>(entropy_[0] + entropy_[1] - settings_.target_entropy);
        log_alpha_.gradient(1)[0] = 0.0F;
    });
}

void SoftActorCritic::descend(std::size_t phase, Sides& sides) {
    if (phase == kCritic) return descend_on(critic_, sides, settings_.tau);
    descend_on(actor_, sides);
    if (settings_.learns_temperature) descend_on(log_alpha_, sides);
}

}  // namespace penstock::kernels
