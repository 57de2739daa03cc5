#include "soft_actor.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace penstock::kernels {

SoftActor::SoftActor(ActorCritics& of, const SoftSettings& settings, std::int64_t every)
    : of_(of), settings_(settings), first_metric_(of.metrics_.size()), log_alpha_("log_alpha", 1, of.level_) {
    of.add(log_alpha_);
    of.phases_.push_back({"actor", every, {&of.actor_}});
    if (settings.learns_temperature) of.phases_.back().learned.push_back(&log_alpha_);
    for (const char* name : {"policy_loss", "entropy", "temperature"}) of.metrics_.push_back({name, ActorCritics::kActor});
    for (auto& made : squashed_)
        made = std::make_unique<Squashed>(of.action_size_, settings.log_std_min, settings.log_std_max,
                                          of.actor_.stack().output_stride(), of.level_);
    for (Floats& slopes : slopes_) slopes = Floats(static_cast<std::size_t>(of.critic_.count() * kRowsAtOnce * of.action_size_));
}

float SoftActor::temperature() const { return std::exp(log_alpha_.numbers()[0]); }

float* SoftActor::slopes(int side, int critic) {
    return slopes_[side].data() + static_cast<std::ptrdiff_t>(critic) * kRowsAtOnce * of_.action_size_;
}

void SoftActor::choose(const std::vector<Rows>& fields, const Weights& weights, std::size_t input, const Part& own, int side) {
    Workspace& work = *of_.work_[side];
    Squashed& sample = *squashed_[side];
    of_.encode(fields, own, work.actor_x.data(), of_.actor_.stack().input_stride());
    of_.noise(input, own, of_.action_size_, work.noise.data());
    sample.sample(work.actor.forward(weights, work.actor_x.data(), own.rows), work.noise.data(), own.rows);
    of_.critic_inputs(work.actor_x.data(), sample.action(), own.rows, work);
}

void SoftActor::judge(int critic, int rows_of, const Part& part, int side) {
    Workspace &own = *of_.work_[side], &rows = *of_.work_[rows_of];
    const Weights weights = of_.critic_.weights(critic);
    of_.keep_values(critic, own.critic.forward(weights, rows.critic_x.data(), part.rows), part.rows, rows);
    const std::ptrdiff_t stride = of_.critic_.stack().output_stride();
    float* d = own.critic.output_gradient();
    std::memset(d, 0, static_cast<std::size_t>(part.rows * stride) * sizeof(float));
    for (std::int32_t r = 0; r < part.rows; ++r) d[r * stride] = 1.0F;
    own.critic.backward_to_inputs(weights, part.rows, of_.encoder_.features(), of_.action_size_, slopes(rows_of, critic));
}

void SoftActor::slopes_of_least(float least, std::int32_t row, int side) {
    Workspace& work = *of_.work_[side];
    const std::int32_t size = of_.action_size_;
    const auto says_least = [&](int critic) { return of_.values(work, critic)[row * of_.outputs_] == least; };
    int smallest = 0;
    for (int critic = 0; critic < of_.critic_.count(); ++critic) smallest += says_least(critic) ? 1 : 0;
    float* to = work.of_action.data() + row * size;
    std::fill_n(to, size, 0.0F);
    for (int critic = 0; critic < of_.critic_.count(); ++critic) {
        if (!says_least(critic)) continue;
        const float* slope = slopes(side, critic) + row * size;
        for (std::int32_t k = 0; k < size; ++k) to[k] += slope[k] / static_cast<float>(smallest);
    }
}

void SoftActor::gradient(const Part& own, int side) {
    Workspace& work = *of_.work_[side];
    const Squashed& sample = chosen(side);
    const float* outputs = work.actor.last();
    const float alpha = temperature();
    float* d = work.actor.output_gradient();
    std::memset(d, 0, static_cast<std::size_t>(own.rows * of_.actor_.stack().output_stride()) * sizeof(float));
    double loss = 0.0, entropy = 0.0;
    for (std::int32_t r = 0; r < own.rows; ++r) {
        const float least = of_.smallest_value(work, r);
        const float of_row = of_.share(own.row + r);
        loss += static_cast<double>(of_row * (alpha * sample.log_prob(r) - least));
        entropy -= static_cast<double>(of_row * sample.log_prob(r));
        slopes_of_least(least, r, side);
        float* of_action = work.of_action.data() + r * of_.action_size_;
        for (std::int32_t k = 0; k < of_.action_size_; ++k) of_action[k] *= -of_row;
        sample.gradient(r, outputs, work.noise.data(), of_action, of_row * alpha, d);
    }
    work.actor.backward(of_.actor_.weights(0), work.actor_x.data(), own.rows, of_.actor_.gradient(side), own.first);
    of_.measure(side, first_metric_, loss);
    of_.measure(side, first_metric_ + 1, entropy);
    entropy_[side] = own.first ? entropy : entropy_[side] + entropy;
}

void SoftActor::gradients(Sides& sides) {
    for (std::int64_t number = 0; number < of_.parts(); ++number) {
        of_.each_own(sides, number, [&](const Part& own, int side) {
            choose(of_.minibatch_.obs, of_.actor_.weights(0), ActorCritics::kActor, own, side);
        });
        of_.each_critic(sides, number, [&](int critic, int rows_of, const Part& part, int side) {
            judge(critic, rows_of, part, side);
        });
        of_.each_own(sides, number, [&](const Part& own, int side) { gradient(own, side); });
    }
    sides.once([&] {
        of_.measure(0, first_metric_ + 2, static_cast<double>(temperature()));
        log_alpha_.gradient(0)[0] = static_cast<float>(entropy_[0] + entropy_[1] - settings_.target_entropy);
        log_alpha_.gradient(1)[0] = 0.0F;
    });
}

void SoftActor::descend(Sides& sides, double tau) {
    of_.descend_on(of_.actor_, sides, tau);
    if (settings_.learns_temperature) of_.descend_on(log_alpha_, sides);
}

}  // namespace penstock::kernels
