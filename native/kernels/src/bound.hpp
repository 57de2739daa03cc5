// A policy bound to fixed arrays: the environment loop's one cheap call a vector step.
// Checks its arrays once; afterwards only row numbers.
#pragma once

#include <string>
#include <vector>

#include "arrays.hpp"
#include "policy.hpp"

namespace penstock::kernels {

class Bound {
public:
    struct Arrays {
        std::vector<Readable> obs;
        std::optional<Writable> action, log_prob, value, q, environment;
        std::optional<Flat<const std::int64_t, nb::ndim<1>>> lanes;
        std::optional<Flat<const float, nb::ndim<1>>> explore;
    };

    Bound(nb::object owner, Policy& policy, Arrays arrays, bool batched, ActionMap map, std::uint64_t seed);

    // Row t with noise that it draws itself, keyed by (seed, lane, step).
    void act(std::int64_t t, std::int64_t step);
    // Row t with the caller's noise [lanes, size].
    void act_on(std::int64_t t, const float* noise, const float* explore);
    // Only the value of row t.
    void value(std::int64_t t);

    std::int64_t lanes() const { return lanes_; }
    std::int64_t noise_size() const { return policy_.graph().head.noise_size(); }

private:
    void bind_obs();
    Field output(const std::optional<Writable>& array, Dtype dtype, std::int64_t size, const char* name);
    const Rows* rows_of_obs(std::int64_t t);

    nb::object owner_;
    Policy& policy_;
    Arrays arrays_;
    bool batched_;
    ActionMap map_;
    std::uint64_t seed_;
    std::int64_t rows_ = 0;
    std::int64_t lanes_ = 0;
    std::vector<Field> obs_;
    std::vector<Rows> obs_rows_;
    Field action_, log_prob_, value_, q_, environment_;
    std::vector<float> noise_, explore_;
};

}  // namespace penstock::kernels
