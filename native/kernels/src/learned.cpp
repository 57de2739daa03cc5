#include "learned.hpp"

#include <cstring>
#include <utility>

namespace penstock::kernels {

Learned::Learned(std::string name, const std::vector<LayerShape>& shapes, int count, bool has_target, const Level& level)
    : name_(std::move(name)), level_(level), stack_(std::make_unique<Stack>(shapes, level)), count_(count),
      has_target_(has_target), flat_size_(stack_->flat_size() * count), member_size_(stack_->packed_size()),
      size_(member_size_ * static_cast<std::size_t>(count)), parameters_(size_), m_(size_), v_(size_),
      target_(has_target ? size_ : 0), gradient_(size_),
      transposed_(stack_->transposed_size() * static_cast<std::size_t>(count)), second_(count % 2 == 1 ? member_size_ : 0) {}

Learned::Learned(std::string name, std::int32_t numbers, const Level& level)
    : name_(std::move(name)), level_(level), count_(1), has_target_(false), flat_size_(numbers),
      member_size_(static_cast<std::size_t>(round_up(numbers, level.width))), size_(member_size_), parameters_(size_),
      m_(size_), v_(size_), target_(0), gradient_(size_), transposed_(0), second_(size_) {}

void Learned::keep_for(const Optimizer& optimizer) {
    if (optimizer.kind != OptimizerKind::muon) return;
    sum_ = Floats(size_);
    if (stack_ == nullptr) return;
    std::vector<Matrix> matrices;
    for (int member = 0; member < count_; ++member)
        for (const Matrix& matrix : stack_->inner_matrices()) {
            matrices.push_back(matrix);
            matrices.back().offset += offset(member);
        }
    for (auto& muon : muon_) muon = std::make_unique<Muon>(matrices, level_);
}

Floats* Learned::find(const std::string& array, const Optimizer& optimizer) {
    const auto is = [&](const char* moment) { return moment != nullptr && array == std::string(moment) + "." + name_; };
    if (array == name_) return &parameters_;
    if (is(optimizer.m_name())) return &m_;
    if (is(optimizer.v_name())) return &v_;
    if (is(optimizer.sum_name())) return &sum_;
    if (has_target_ && array == "target." + name_) return &target_;
    return nullptr;
}

void Learned::load(Floats& packed, const float* flat) {
    if (stack_ == nullptr) {
        std::memcpy(packed.data(), flat, static_cast<std::size_t>(flat_size_) * sizeof(float));
        return;
    }
    for (int member = 0; member < count_; ++member)
        stack_->pack(flat + member * stack_->flat_size(), packed.data() + offset(member));
}

void Learned::store(const Floats& packed, float* flat) const {
    if (stack_ == nullptr) {
        std::memcpy(flat, packed.data(), static_cast<std::size_t>(flat_size_) * sizeof(float));
        return;
    }
    for (int member = 0; member < count_; ++member)
        stack_->unpack(packed.data() + offset(member), flat + member * stack_->flat_size());
}

void Learned::refresh() {
    for (int side = 0; side < kSides; ++side) transpose(side);
}

Weights Learned::weights(int member) const {
    return {parameters_.data() + offset(member),
            transposed_.data() + static_cast<std::size_t>(member) * stack_->transposed_size()};
}

Learned::Half Learned::half(int side, std::size_t of) const {
    const auto width = static_cast<std::size_t>(level_.width);
    const std::size_t middle = of / width / 2 * width;
    return side == 0 ? Half{0, middle} : Half{middle, of - middle};
}

void Learned::add_sides(int side) {
    if (count_ % 2 == 0) return;
    const auto [first, count] = half(side, member_size_);
    level_.add(second_.data() + first, count, gradient_.data() + offset(count_ / 2) + first);
}

double Learned::squares(int side) const {
    const auto [first, count] = half(side);
    return level_.squares(gradient_.data() + first, count);
}

// Plain numbers, such as a temperature, are no weights.
Moments Learned::moments() {
    return {parameters_.data(), m_.data(), v_.data(), sum_.data(), gradient_.data(), size_, stack_ != nullptr};
}

void Learned::step_matrices(int side, const Optimizer& optimizer, double lr, float scale) {
    Muon& muon = *muon_[side];
    for (auto matrix = static_cast<std::size_t>(side); matrix < muon.matrices(); matrix += kSides)
        muon.step(matrix, optimizer, moments(), lr, scale);
}

void Learned::descend(int side, const Optimizer& optimizer, double lr, float scale) {
    const auto [first, count] = half(side);
    if (has_matrices())
        muon_[side]->step_others(optimizer, moments(), first, count, steps + 1, lr, scale);
    else
        penstock::kernels::descend(optimizer, level_, moments().part(first, count), steps + 1, lr, scale);
}

void Learned::approach(int side, double share) {
    const auto [first, count] = half(side);
    level_.follow(gradient_.data() + first, count, static_cast<float>(share), parameters_.data() + first);
}

void Learned::follow(int side, double tau) {
    const auto [first, count] = half(side);
    level_.follow(parameters_.data() + first, count, static_cast<float>(tau), target_.data() + first);
}

void Learned::copy_to_target(int side) {
    const auto [first, count] = half(side);
    std::memcpy(target_.data() + first, parameters_.data() + first, count * sizeof(float));
}

void Learned::transpose(int side) {
    if (stack_ == nullptr) return;
    for (int member = 0; member < count_; ++member) {
        const float* packed = parameters_.data() + offset(member);
        float* to = transposed_.data() + static_cast<std::size_t>(member) * stack_->transposed_size();
        if (is_shared(member))
            stack_->transpose(packed, to, side, kSides, level_);
        else if (computes(side, member, side))
            stack_->transpose(packed, to, 0, 1, level_);
    }
}

}  // namespace penstock::kernels
