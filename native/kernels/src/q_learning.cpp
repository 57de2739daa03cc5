#include "q_learning.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace penstock::kernels {

QLearning::Workspace::Workspace(const Stack& stack, const QSettings& settings, const Level& level)
    : pass(stack, level), target(stack, level), x(static_cast<std::size_t>(kRowsAtOnce * stack.input_stride())),
      following(static_cast<std::size_t>(settings.actions * settings.atoms)),
      chooser(static_cast<std::size_t>(settings.actions * settings.atoms)),
      said(static_cast<std::size_t>(settings.actions * settings.atoms)),
      target_share(static_cast<std::size_t>(settings.atoms)), d(static_cast<std::size_t>(settings.atoms)) {}

QLearning::QLearning(std::vector<Encoding> encoding, const std::vector<LayerShape>& layers, const QSettings& settings,
                     const Optimizer& optimizer, const Level& level)
    : ReplayUpdate(std::move(encoding), {{}, 0}, optimizer, level), settings_(settings),
      actor_("actor", layers, 1, true, level) {
    add(actor_);
    phases_ = {{"update", 1, {&actor_}}, {"target", settings.target_every, {}}};
    metrics_ = {{"value_loss", kUpdate}, {"mean_value", kUpdate}, {"grad_norm", kUpdate}};
    const double spacing = settings.atoms > 1 ? (settings.high - settings.low) / (settings.atoms - 1) : 0.0;
    for (std::int32_t i = 0; i < settings.atoms; ++i) atoms_.push_back(static_cast<float>(settings.low + spacing * i));
    for (auto& work : work_) work = std::make_unique<Workspace>(actor_.stack(), settings, level);
}

void QLearning::combine(const float* outputs, float* to) const {
    const std::int32_t actions = settings_.actions, atoms = settings_.atoms;
    if (!settings_.dueling) {
        std::memcpy(to, outputs, static_cast<std::size_t>(actions * atoms) * sizeof(float));
        return;
    }
    const float* advantage = outputs + atoms;
    for (std::int32_t i = 0; i < atoms; ++i) {
        float mean = 0.0F;
        for (std::int32_t k = 0; k < actions; ++k) mean += advantage[k * atoms + i];
        mean /= static_cast<float>(actions);
        for (std::int32_t k = 0; k < actions; ++k) to[k * atoms + i] = outputs[i] + (advantage[k * atoms + i] - mean);
    }
}

float QLearning::softmax(const float* logits, float* to) const {
    const auto atoms = static_cast<std::size_t>(settings_.atoms);
    const float top = *std::max_element(logits, logits + atoms);
    for (std::size_t i = 0; i < atoms; ++i) to[i] = logits[i] - top;
    level_.elementwise(Elementwise::exp, to, atoms);
    float total = 0.0F;
    for (std::size_t i = 0; i < atoms; ++i) total += to[i];
    for (std::size_t i = 0; i < atoms; ++i) to[i] /= total;
    return top + std::log(total);
}

std::int32_t QLearning::best(const float* values) const {
    const std::int32_t atoms = settings_.atoms;
    if (atoms == 1) return static_cast<std::int32_t>(std::max_element(values, values + settings_.actions) - values);
    std::vector<float> share(static_cast<std::size_t>(atoms));
    std::int32_t found = 0;
    float most = 0.0F;
    for (std::int32_t k = 0; k < settings_.actions; ++k) {
        softmax(values + k * atoms, share.data());
        float mean = 0.0F;
        for (std::size_t i = 0; i < share.size(); ++i) mean += share[i] * atoms_[i];
        if (k == 0 || mean > most) {
            found = k;
            most = mean;
        }
    }
    return found;
}

QLearning::Judged QLearning::judge_mean(std::int64_t row, std::int32_t action, std::int32_t next, Workspace& work) const {
    const auto limit = static_cast<float>(settings_.error_clip);
    const float value = work.said.data()[action];
    const float error = value - (minibatch_.reward[row] + minibatch_.discount[row] * work.following.data()[next]);
    const float size = std::abs(error), inside = std::min(size, limit);
    work.d.data()[0] = std::copysign(inside, error);
    return {inside * (size - 0.5F * inside), size, value};
}

QLearning::Judged QLearning::judge_atoms(std::int64_t row, std::int32_t action, std::int32_t next, Workspace& work) const {
    const std::int32_t atoms = settings_.atoms;
    const auto low = static_cast<float>(settings_.low), high = static_cast<float>(settings_.high);
    const float spacing = (high - low) / static_cast<float>(atoms - 1);
    float *m = work.target_share.data(), *p = work.d.data();
    // The two atoms next to a return share its probability.
    softmax(work.following.data() + next * atoms, p);
    std::fill_n(m, atoms, 0.0F);
    for (std::int32_t j = 0; j < atoms; ++j) {
        const float y = std::clamp(minibatch_.reward[row] + minibatch_.discount[row] * atoms_[static_cast<std::size_t>(j)], low, high);
        const float at = (y - low) / spacing;
        const std::int32_t below = std::clamp(static_cast<std::int32_t>(at), 0, atoms - 2);
        const float above = std::clamp(at - static_cast<float>(below), 0.0F, 1.0F);
        m[below] += p[j] * (1.0F - above);
        m[below + 1] += p[j] * above;
    }
    const float* logits = work.said.data() + action * atoms;
    const float log_total = softmax(logits, p);
    float loss = 0.0F, entropy = 0.0F, value = 0.0F, total = 0.0F;
    for (std::int32_t i = 0; i < atoms; ++i) {
        loss -= m[i] * (logits[i] - log_total);
        if (m[i] > 0.0F) entropy += m[i] * std::log(m[i]);
        value += p[i] * atoms_[static_cast<std::size_t>(i)];
        total += m[i];
    }
    for (std::int32_t i = 0; i < atoms; ++i) p[i] = total * p[i] - m[i];
    // Written so that a NaN stays one.
    const float error = loss + entropy;
    return {loss, error < 0.0F ? 0.0F : error, value};
}

void QLearning::gradient(const Part& part, int side, Workspace& work) {
    const std::ptrdiff_t stride = actor_.stack().output_stride(), inputs = actor_.stack().input_stride();
    const std::int32_t atoms = settings_.atoms, actions = settings_.actions;
    const Weights weights = actor_.weights(0);
    std::int32_t next[kRowsAtOnce];
    encode(minibatch_.next, part, work.x.data(), inputs);
    const float* following = work.target.forward(actor_.target(0), work.x.data(), part.rows);
    const float* chooser = settings_.double_ ? work.pass.forward(weights, work.x.data(), part.rows) : following;
    for (std::int32_t r = 0; r < part.rows; ++r) {
        combine(chooser + r * stride, work.chooser.data());
        next[r] = best(work.chooser.data());
    }
    encode(minibatch_.obs, part, work.x.data(), inputs);
    const float* said = work.pass.forward(weights, work.x.data(), part.rows);
    float* d = work.pass.output_gradient();
    std::memset(d, 0, static_cast<std::size_t>(part.rows * stride) * sizeof(float));
    double loss = 0.0, mean = 0.0;
    for (std::int32_t r = 0; r < part.rows; ++r) {
        const std::int64_t row = part.row + r;
        // Rows from a file may hold any number.
        const auto action = static_cast<std::int32_t>(
            std::clamp<std::int64_t>(read_integer(minibatch_.action.row(row), minibatch_.action.dtype), 0, actions - 1));
        combine(following + r * stride, work.following.data());
        combine(said + r * stride, work.said.data());
        const Judged found = atoms == 1 ? judge_mean(row, action, next[r], work) : judge_atoms(row, action, next[r], work);
        const float of_row = share(row);
        loss += static_cast<double>(of_row * found.loss);
        mean += static_cast<double>(of_row * found.value);
        if (minibatch_.priority != nullptr)
            minibatch_.priority[row] = found.error + static_cast<float>(settings_.least_priority);
        const float weight = minibatch_.importance == nullptr ? of_row : of_row * minibatch_.importance[row];
        float* to = d + r * stride;
        for (std::int32_t i = 0; i < atoms; ++i) {
            const float slope = weight * work.d.data()[i];
            if (!settings_.dueling) {
                to[action * atoms + i] = slope;
                continue;
            }
            to[i] = slope;
            for (std::int32_t k = 0; k < actions; ++k)
                to[(1 + k) * atoms + i] = slope * ((k == action ? 1.0F : 0.0F) - 1.0F / static_cast<float>(actions));
        }
    }
    measure(side, kValueLoss, loss);
    measure(side, kMeanValue, mean);
    work.pass.backward(weights, work.x.data(), part.rows, actor_.gradient(side), part.first);
}

void QLearning::gradients(std::size_t phase, Sides& sides) {
    if (phase == kTarget) return;
    sides.both([&](int side) { each_part(side, [&](const Part& part) { gradient(part, side, *work_[side]); }); });
}

void QLearning::look(std::size_t phase, Sides& sides, bool own) {
    if (phase == kTarget) return;
    sides.both([&](int side) { squares_[side] = actor_.squares(side); });
    sides.once([&] {
        const double norm = std::sqrt(squares_[0] + squares_[1]);
        scale_ = static_cast<float>(std::min(1.0, settings_.max_grad_norm / (norm + 1e-6)));
        if (own) measure(0, kGradNorm, norm);
    });
}

void QLearning::descend(std::size_t phase, Sides& sides) {
    if (phase == kTarget) return sides.both([&](int side) { actor_.copy_to_target(side); });
    descend_on(actor_, sides, 0.0, scale_);
}

}  // namespace penstock::kernels
