#include "actor_critics.hpp"

#include <cstring>
#include <utility>

namespace penstock::kernels {

namespace {

std::size_t floats(std::int32_t columns) {
    return static_cast<std::size_t>(kRowsAtOnce) * static_cast<std::size_t>(columns);
}

}  // namespace

ActorCritics::Workspace::Workspace(const Learned& actor_of, const Learned& critic, std::int32_t elements, const Level& level)
    : actor(actor_of.stack(), level), actor_x(floats(actor_of.stack().input_stride())),
      critic_x(floats(critic.stack().input_stride())), critic_dx(floats(critic.stack().input_stride())),
      noise(floats(elements)), action(floats(elements)), of_action(floats(elements)), target(kRowsAtOnce),
      values(static_cast<std::size_t>(critic.count())) {
    critics.reserve(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) critics.emplace_back(critic.stack(), level);
}

ActorCritics::ActorCritics(std::vector<Encoding> encoding, const ActorCriticShapes& shapes, NoiseKeys keys,
                           const Optimizer& optimizer, const Level& level)
    : ReplayUpdate(std::move(encoding), std::move(keys), optimizer, level), action_size_(shapes.action),
      actor_("actor", shapes.actor, 1, shapes.actor_target, level),
      critic_("critic", shapes.critic, shapes.critics, true, level) {
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

void ActorCritics::smallest_target(const float* actions, const Part& part, Workspace& work) {
    critic_inputs(work.actor_x.data(), actions, part.rows, work);
    const std::ptrdiff_t stride = critic_.stack().output_stride();
    for (int c = 0; c < critic_.count(); ++c) {
        const float* value = work.critics[static_cast<std::size_t>(c)].forward(critic_.target(c), work.critic_x.data(), part.rows);
        for (std::int32_t r = 0; r < part.rows; ++r) {
            float& least = work.target.data()[r];
            least = c == 0 ? value[r * stride] : smaller(value[r * stride], least);
        }
    }
}

void ActorCritics::taken(const Part& part, Workspace& work) const {
    encode(minibatch_.obs, part, work.actor_x.data(), actor_.stack().input_stride());
    for (std::int32_t r = 0; r < part.rows; ++r)
        read_floats(minibatch_.action.row(part.row + r), minibatch_.action.dtype, action_size_,
                    work.action.data() + r * action_size_);
    critic_inputs(work.actor_x.data(), work.action.data(), part.rows, work);
}

void ActorCritics::squared_errors(const Part& part, int side, float scale, Workspace& work) {
    taken(part, work);
    const std::ptrdiff_t stride = critic_.stack().output_stride();
    double loss = 0.0, mean = 0.0;
    for (int c = 0; c < critic_.count(); ++c) {
        Pass& pass = work.critics[static_cast<std::size_t>(c)];
        const Weights weights = critic_.weights(c);
        const float* value = pass.forward(weights, work.critic_x.data(), part.rows);
        float* d = pass.output_gradient();
        std::memset(d, 0, static_cast<std::size_t>(part.rows * stride) * sizeof(float));
        for (std::int32_t r = 0; r < part.rows; ++r) {
            const float of_row = share(part.row + r);
            const float error = value[r * stride] - work.target.data()[r];
            loss += static_cast<double>(scale * of_row * error * error);
            mean += static_cast<double>(of_row * value[r * stride]);
            d[r * stride] = 2.0F * scale * of_row * error;
        }
        pass.backward(weights, work.critic_x.data(), part.rows, critic_.gradient(side, c), part.first);
    }
    measure(side, kValueLoss, loss);
    measure(side, kMeanValue, mean / critic_.count());
}

void ActorCritics::critic_gradients(int side) {
    if (!has_rows(side)) critic_.clear(side);
    each_part(side, [&](const Part& part) { critic_gradient(part, side, *work_[side]); });
}

}  // namespace penstock::kernels
