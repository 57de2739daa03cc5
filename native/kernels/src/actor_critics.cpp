#include "actor_critics.hpp"

#include <cstring>
#include <utility>

namespace penstock::kernels {

namespace {

std::size_t floats(std::int32_t columns) {
    return static_cast<std::size_t>(kRowsAtOnce) * static_cast<std::size_t>(columns);
}

}  // namespace

ActorCritics::Workspace::Workspace(const Learned& actor_of, const Learned& critic_of, std::int32_t elements, const Level& level)
    : actor(actor_of.stack(), level), critic(critic_of.stack(), level), actor_x(floats(actor_of.stack().input_stride())),
      critic_x(floats(critic_of.stack().input_stride())), noise(floats(elements)), action(floats(elements)),
      of_action(floats(elements)), target(kRowsAtOnce),
      values(floats(critic_of.count() * critic_of.stack().outputs())) {}

ActorCritics::ActorCritics(std::vector<Encoding> encoding, const ActorCriticShapes& shapes, NoiseKeys keys,
                           const Optimizer& optimizer, const Level& level)
    : ReplayUpdate(std::move(encoding), std::move(keys), optimizer, level), action_size_(shapes.action),
      actor_("actor", shapes.actor, 1, shapes.actor_target, level),
      critic_("critic", shapes.critic, shapes.critics, true, level), outputs_(critic_.stack().outputs()) {
    add(actor_);
    add(critic_);
    for (auto& work : work_) work = std::make_unique<Workspace>(actor_, critic_, shapes.action, level);
    phases_ = {{"critic", 1, {&critic_}}};
    metrics_ = {{"value_loss", kCritic}, {"mean_value", kCritic}};
}

void ActorCritics::critic_inputs(const float* x, const float* actions, std::int32_t rows, Workspace& work) const {
    const std::ptrdiff_t from = actor_.stack().input_stride(), to = critic_.stack().input_stride();
    const auto features = static_cast<std::size_t>(encoder_.features());
    const auto size = static_cast<std::size_t>(action_size_);
    for (std::int32_t r = 0; r < rows; ++r) {
        std::memcpy(work.critic_x.data() + r * to, x + r * from, features * sizeof(float));
        std::memcpy(work.critic_x.data() + r * to + features, actions + r * action_size_, size * sizeof(float));
    }
}

void ActorCritics::keep_values(int critic, const float* outputs, std::int32_t rows, Workspace& work) const {
    const std::ptrdiff_t stride = critic_.stack().output_stride();
    float* to = values(work, critic);
    for (std::int32_t r = 0; r < rows; ++r)
        std::memcpy(to + r * outputs_, outputs + r * stride, static_cast<std::size_t>(outputs_) * sizeof(float));
}

float ActorCritics::smallest_value(const Workspace& work, std::int32_t row) const {
    float least = values(work, 0)[row * outputs_];
    for (int critic = 1; critic < critic_.count(); ++critic) least = smaller(values(work, critic)[row * outputs_], least);
    return least;
}

void ActorCritics::taken(const Part& own, Workspace& work) const {
    encode(minibatch_.obs, own, work.actor_x.data(), actor_.stack().input_stride());
    for (std::int32_t r = 0; r < own.rows; ++r)
        read_floats(minibatch_.action.row(own.row + r), minibatch_.action.dtype, action_size_,
                    work.action.data() + r * action_size_);
    critic_inputs(work.actor_x.data(), work.action.data(), own.rows, work);
}

void ActorCritics::squared_errors(int rows_of, const Part& part, int side, float scale, const float* values, float* d) {
    const float* target = work_[rows_of]->target.data();
    const std::ptrdiff_t stride = critic_.stack().output_stride();
    double loss = 0.0, mean = 0.0;
    for (std::int32_t r = 0; r < part.rows; ++r) {
        const float of_row = share(part.row + r);
        const float error = values[r * stride] - target[r];
        loss += static_cast<double>(scale * of_row * error * error);
        mean += static_cast<double>(of_row * values[r * stride]);
        d[r * stride] = 2.0F * scale * of_row * error;
    }
    measure(side, kValueLoss, loss);
    measure(side, kMeanValue, mean / critic_.count());
}

void ActorCritics::critic_gradients(Sides& sides) {
    const std::ptrdiff_t stride = critic_.stack().output_stride();
    for (std::int64_t number = 0; number < parts(); ++number) {
        each_own(sides, number, [&](const Part& own, int side) { choose_next(own, side); });
        each_critic(sides, number, [&](int critic, int rows_of, const Part& part, int side) {
            Workspace& rows = *work_[rows_of];
            keep_values(critic, work_[side]->critic.forward(critic_.target(critic), rows.critic_x.data(), part.rows), part.rows, rows);
        });
        each_own(sides, number, [&](const Part& own, int side) {
            targets(own, side);
            taken(own, *work_[side]);
        });
        each_critic(sides, number, [&](int critic, int rows_of, const Part& part, int side) {
            Pass& pass = work_[side]->critic;
            const float* x = work_[rows_of]->critic_x.data();
            const Weights weights = critic_.weights(critic);
            const float* outputs = pass.forward(weights, x, part.rows);
            float* d = pass.output_gradient();
            std::memset(d, 0, static_cast<std::size_t>(part.rows * stride) * sizeof(float));
            errors(critic, rows_of, part, side, outputs, d);
            pass.backward(weights, x, part.rows, critic_.gradient(side, critic), part.first);
        });
    }
}

}  // namespace penstock::kernels
