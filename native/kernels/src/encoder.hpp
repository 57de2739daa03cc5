// Turns observation fields into the features of a network: see penstock.policies.Encoding and PolicyGraph.
// Does not read images.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "penstock/kernels/rows.hpp"

namespace penstock::kernels {

struct Encoding {
    bool one_hot;
    std::int32_t size;
    std::int64_t start;
};

class Encoder {
public:
    Encoder(std::vector<Encoding> parts, bool normalize) : parts_(std::move(parts)) {
        for (const Encoding& part : parts_) features_ += part.size;
        if (!normalize) return;
        mean_.assign(static_cast<std::size_t>(features_), 0.0F);
        scale_.assign(static_cast<std::size_t>(features_), 1.0F);
    }

    std::int32_t features() const { return features_; }
    std::size_t statistics() const { return mean_.size(); }

    // Sets what features are shifted and scaled by, from their mean and variance. Does nothing without normalisation.
    void load(const double* mean, const double* variance) {
        for (std::size_t i = 0; i < mean_.size(); ++i) {
            mean_[i] = static_cast<float>(mean[i]);
            scale_[i] = static_cast<float>(1.0 / std::sqrt(variance[i] + 1e-8));
        }
    }

    // Encodes row `index` of every field. `obs[i]` is the field of encoding i.
    void encode(const Rows* obs, std::int64_t index, float* to) const {
        float* at = to;
        for (const Encoding& part : parts_) {
            const std::byte* from = obs->row(index);
            if (part.one_hot) {
                std::fill_n(at, part.size, 0.0F);
                const std::int64_t chosen = read_integer(from, obs->dtype) - part.start;
                if (chosen >= 0 && chosen < part.size) at[chosen] = 1.0F;
            } else {
                read_floats(from, obs->dtype, part.size, at);
            }
            at += part.size;
            ++obs;
        }
        for (std::size_t i = 0; i < mean_.size(); ++i) {
            const float x = (to[i] - mean_[i]) * scale_[i];
            to[i] = x > 10.0F ? 10.0F : (x < -10.0F ? -10.0F : x);
        }
    }

private:
    std::vector<Encoding> parts_;
    std::int32_t features_ = 0;
    std::vector<float> mean_, scale_;
};

}  // namespace penstock::kernels
