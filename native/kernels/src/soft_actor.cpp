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
}

float SoftActor::temperature() const { return std::exp(log_alpha_.numbers()[0]); }

SoftActor::Chosen SoftActor::choose(const std::vector<Rows>& fields, const Weights& weights, std::size_t input,
                                    const Part& part, Workspace& work) {
    Squashed& sample = *squashed_[&work == of_.work_[0].get() ? 0 : 1];
    of_.encode(fields, part, work.actor_x.data(), of_.actor_.stack().input_stride());
    of_.noise(input, part, of_.action_size_, work.noise.data());
    const float* outputs = work.actor.forward(weights, work.actor_x.data(), part.rows);
    sample.sample(outputs, work.noise.data(), part.rows);
    return {sample, outputs};
}

void SoftActor::gradient(const Part& part, int side, Workspace& work) {
    const Learned& critic = of_.critic_;
    const std::int32_t size = of_.action_size_;
    const auto [chosen, outputs] = choose(of_.minibatch_.obs, of_.actor_.weights(0), ActorCritics::kActor, part, work);
    of_.critic_inputs(work.actor_x.data(), chosen.action(), part.rows, work);
    for (int c = 0; c < critic.count(); ++c)
        work.values[static_cast<std::size_t>(c)] =
            work.critics[static_cast<std::size_t>(c)].forward(critic.weights(c), work.critic_x.data(), part.rows);
    const std::ptrdiff_t stride = critic.stack().output_stride();
    for (Pass& pass : work.critics)
        std::memset(pass.output_gradient(), 0, static_cast<std::size_t>(part.rows * stride) * sizeof(float));
    const float alpha = temperature();
    double loss = 0.0, entropy = 0.0;
    for (std::int32_t r = 0; r < part.rows; ++r) {
        float least = work.values[0][r * stride];
        for (const float* value : work.values) least = smaller(value[r * stride], least);
        const auto smallest = std::ranges::count_if(work.values, [&](const float* value) { return value[r * stride] == least; });
        const float of_row = of_.share(part.row + r);
        loss += static_cast<double>(of_row * (alpha * chosen.log_prob(r) - least));
        entropy -= static_cast<double>(of_row * chosen.log_prob(r));
        // Critics with equal smallest values share the gradient.
        for (std::size_t c = 0; c < work.values.size(); ++c)
            if (work.values[c][r * stride] == least)
                work.critics[c].output_gradient()[r * stride] = -of_row / static_cast<float>(smallest);
    }
    std::memset(work.of_action.data(), 0, static_cast<std::size_t>(part.rows * size) * sizeof(float));
    const std::ptrdiff_t columns = critic.stack().input_stride();
    for (int c = 0; c < critic.count(); ++c) {
        work.critics[static_cast<std::size_t>(c)].backward_to_inputs(critic.weights(c), part.rows, work.critic_dx.data());
        for (std::int32_t r = 0; r < part.rows; ++r)
            for (std::int32_t k = 0; k < size; ++k)
                work.of_action.data()[r * size + k] += work.critic_dx.data()[r * columns + of_.encoder_.features() + k];
    }
    float* d = work.actor.output_gradient();
    std::memset(d, 0, static_cast<std::size_t>(part.rows * of_.actor_.stack().output_stride()) * sizeof(float));
    for (std::int32_t r = 0; r < part.rows; ++r)
        chosen.gradient(r, outputs, work.noise.data(), work.of_action.data() + r * size, of_.share(part.row + r) * alpha, d);
    work.actor.backward(of_.actor_.weights(0), work.actor_x.data(), part.rows, of_.actor_.gradient(side), part.first);
    of_.measure(side, first_metric_, loss);
    of_.measure(side, first_metric_ + 1, entropy);
    entropy_[side] += entropy;
}

void SoftActor::gradients(Sides& sides) {
    sides.both([&](int side) {
        entropy_[side] = 0.0;
        if (!of_.has_rows(side)) of_.actor_.clear(side);
        of_.each_part(side, [&](const Part& part) { gradient(part, side, *of_.work_[side]); });
    });
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
