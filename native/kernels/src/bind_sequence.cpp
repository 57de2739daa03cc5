#include "bind_sequence.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <limits>

#include "arrays.hpp"
#include "sequence.hpp"

namespace penstock::kernels {
namespace {

using namespace nb::literals;

template <typename T>
using Cube = nb::ndarray<T, nb::ndim<3>, nb::device::cpu>;
template <typename T>
using Whole = Flat<T, nb::ndim<3>>;
using First = nb::ndarray<const bool, nb::ndim<2>, nb::device::cpu>;
using LevelName = std::optional<std::string>;

const Level& level_of(const LevelName& name) { return name ? level(name->c_str()) : best_level(); }

template <typename Array>
void require_shape(const Array& array, std::initializer_list<std::size_t> shape, const char* name) {
    std::size_t axis = 0;
    for (const std::size_t extent : shape)
        require(array.shape(axis++) == extent, std::string(name) + " does not have the shape that x and recurrent call for");
}

// The shape [T, lanes, size] of a run, against which arrays are checked. `gates` is 4 for an LSTM, 3 for a GRU.
struct Checked {
    std::size_t steps, lanes, size, gates;

    template <typename T>
    Checked(const Plane<T>& recurrent, const First& first, std::size_t parts)
        : steps(first.shape(0)), lanes(first.shape(1)), size(recurrent.shape(0)), gates(parts) {
        constexpr auto most = static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max());
        require(steps > 0 && lanes > 0 && size > 0, "a sequence needs a step, a lane and a unit");
        require(lanes <= most && size <= most / 8, "too many lanes or units");
        require_shape(recurrent, {size, gates * size}, "recurrent");
    }

    Sequence sequence(const First& first) const {
        return {static_cast<std::int64_t>(steps), static_cast<std::int32_t>(lanes), static_cast<std::int32_t>(size),
                {first.data(), first.stride(0), first.stride(1)}};
    }
    // [T, lanes, width], each row contiguous.
    template <typename T>
    Steps<T> rows(const Cube<T>& array, std::size_t width, const char* name) const {
        require_shape(array, {steps, lanes, width}, name);
        require(width == 1 || array.stride(2) == 1, std::string(name) + " must be contiguous within a row");
        return {array.data(), array.stride(0), array.stride(1)};
    }
    template <typename T>
    T* saved(const Whole<T>& array, std::size_t width, const char* name) const {
        require_shape(array, {steps, lanes, width}, name);
        return array.data();
    }
    template <typename T>
    T* state(const Plane<T>& array, const char* name) const {
        require_shape(array, {lanes, size}, name);
        return array.data();
    }
    template <typename T>
    T* bias(const Line<T>& array, const char* name) const {
        require_shape(array, {gates * size}, name);
        return array.data();
    }
    float* weights(const Plane<float>& array, const char* name) const {
        require_shape(array, {size, gates * size}, name);
        return array.data();
    }
};

void lstm(const Cube<const float>& x, const Plane<const float>& recurrent, const First& first, const Plane<const float>& h,
          const Plane<const float>& c, const Cube<float>& output, const Plane<float>& last_h, const Plane<float>& last_c,
          const Whole<float>& gates, const Whole<float>& cells, const LevelName& level_name) {
    const Checked of(recurrent, first, 4);
    const LstmForward run{of.sequence(first), of.rows(x, 4 * of.size, "x"), recurrent.data(), of.state(h, "h"),
                          of.state(c, "c"), of.rows(output, of.size, "output"), of.state(last_h, "last_h"),
                          of.state(last_c, "last_c"),
                          of.saved(gates, 4 * of.size, "gates"), of.saved(cells, of.size, "cells")};
    const Level& chosen = level_of(level_name);
    const nb::gil_scoped_release released;
    forward(run, chosen);
}

void lstm_backward(const Cube<const float>& d_output, const Plane<const float>& d_last_h, const Plane<const float>& d_last_c,
                   const Plane<const float>& recurrent, const First& first, const Plane<const float>& h,
                   const Plane<const float>& c, const Cube<const float>& output, const Whole<const float>& gates,
                   const Whole<const float>& cells, const Cube<float>& d_x, const Plane<float>& d_recurrent,
                   const Plane<float>& d_h, const Plane<float>& d_c, const LevelName& level_name) {
    const Checked of(recurrent, first, 4);
    const LstmBackward run{of.sequence(first), of.rows(d_output, of.size, "d_output"), of.state(d_last_h, "d_last_h"),
                           of.state(d_last_c, "d_last_c"), recurrent.data(), of.state(h, "h"), of.state(c, "c"),
                           of.rows(output, of.size, "output"), of.saved(gates, 4 * of.size, "gates"),
                           of.saved(cells, of.size, "cells"), of.rows(d_x, 4 * of.size, "d_x"),
                           of.weights(d_recurrent, "d_recurrent"), of.state(d_h, "d_h"), of.state(d_c, "d_c")};
    const Level& chosen = level_of(level_name);
    const nb::gil_scoped_release released;
    backward(run, chosen);
}

void gru(const Cube<const float>& x, const Plane<const float>& recurrent, const Line<const float>& bias, const First& first,
         const Plane<const float>& h, const Cube<float>& output, const Plane<float>& last_h, const Whole<float>& gates,
         const LevelName& level_name) {
    const Checked of(recurrent, first, 3);
    const GruForward run{of.sequence(first), of.rows(x, 3 * of.size, "x"), recurrent.data(), of.bias(bias, "bias"),
                         of.state(h, "h"), of.rows(output, of.size, "output"), of.state(last_h, "last_h"),
                         of.saved(gates, 4 * of.size, "gates")};
    const Level& chosen = level_of(level_name);
    const nb::gil_scoped_release released;
    forward(run, chosen);
}

void gru_backward(const Cube<const float>& d_output, const Plane<const float>& d_last_h, const Plane<const float>& recurrent,
                  const First& first, const Plane<const float>& h, const Cube<const float>& output,
                  const Whole<const float>& gates, const Cube<float>& d_x, const Plane<float>& d_recurrent,
                  const Line<float>& d_bias, const Plane<float>& d_h, const LevelName& level_name) {
    const Checked of(recurrent, first, 3);
    const GruBackward run{of.sequence(first), of.rows(d_output, of.size, "d_output"), of.state(d_last_h, "d_last_h"),
                          recurrent.data(), of.state(h, "h"), of.rows(output, of.size, "output"),
                          of.saved(gates, 4 * of.size, "gates"), of.rows(d_x, 3 * of.size, "d_x"),
                          of.weights(d_recurrent, "d_recurrent"), of.bias(d_bias, "d_bias"), of.state(d_h, "d_h")};
    const Level& chosen = level_of(level_name);
    const nb::gil_scoped_release released;
    backward(run, chosen);
}

}  // namespace

void bind_sequence(nb::module_& module) {
    module.def("lstm", &lstm, array("x"), array("recurrent"), array("first"), array("h"), array("c"), array("output"),
               array("last_h"), array("last_c"), array("gates"), array("cells"), "level"_a = nb::none());
    module.def("lstm_backward", &lstm_backward, array("d_output"), array("d_last_h"), array("d_last_c"),
               array("recurrent"), array("first"), array("h"), array("c"), array("output"), array("gates"),
               array("cells"), array("d_x"), array("d_recurrent"), array("d_h"), array("d_c"), "level"_a = nb::none());
    module.def("gru", &gru, array("x"), array("recurrent"), array("bias"), array("first"), array("h"), array("output"),
               array("last_h"), array("gates"), "level"_a = nb::none());
    module.def("gru_backward", &gru_backward, array("d_output"), array("d_last_h"), array("recurrent"), array("first"),
               array("h"), array("output"), array("gates"), array("d_x"), array("d_recurrent"), array("d_bias"),
               array("d_h"), "level"_a = nb::none());
}

}  // namespace penstock::kernels
