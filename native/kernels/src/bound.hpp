// A policy bound to fixed arrays, so that the environment loop needs one cheap call for each vector step.
// Checks the arrays once, and row numbers in each call.
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
        std::optional<Readable> first;         // with a carry
        std::vector<Readable> carry;           // [lanes, size]
        std::vector<Writable> next_carry;      // the same, or empty: not wanted
        std::optional<Readable> mask;          // of a masked policy
        std::optional<Writable> action, log_prob, value, q, environment;
        std::optional<Flat<const std::int64_t, nb::ndim<1>>> lanes;
        std::optional<Flat<const float, nb::ndim<1>>> explore;
    };

    Bound(nb::object owner, Policy& policy, Arrays arrays, bool batched, ActionMap map, std::uint64_t seed);

    // Acts on row t, with noise that it generates itself, keyed by (seed, lane, step).
    void act(std::int64_t t, std::int64_t step);
    // Acts on row t, with the caller's noise [lanes, size].
    void act_on(std::int64_t t, const float* noise, const float* explore);
    // Computes only the value of row t.
    void value(std::int64_t t);

    std::int64_t lanes() const { return lanes_; }
    std::int64_t noise_size() const { return policy_.graph().head.noise_size(); }

private:
    void bind_obs();
    void bind_carry();
    void bind_mask();
    template <typename Array>
    std::vector<Rows> carried(const std::vector<Array>& arrays) const;
    Field output(const std::optional<Writable>& array, Dtype dtype, std::int64_t size, const char* name);
    // Throws std::out_of_range if there is no row t.
    Inputs inputs(std::int64_t t, const float* noise, const float* explore);

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
    std::vector<Rows> carry_, next_carry_;
    Field first_, mask_, action_, log_prob_, value_, q_, environment_;
    std::vector<float> noise_, explore_;
};

}  // namespace penstock::kernels
