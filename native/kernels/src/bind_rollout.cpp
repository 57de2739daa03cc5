// Python's view of the rollout writer: checks a slot's arrays once, and a source's whenever they are other ones.
#include "bind_rollout.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "arrays.hpp"
#include "rollout.hpp"

namespace penstock::kernels {
namespace {

template <typename T>
using Line = Flat<T, nb::ndim<1>>;
template <typename T>
using Plane = Flat<T, nb::ndim<2>>;
using Block = nb::ndarray<nb::c_contig, nb::device::cpu>;

// A Python buffer with its format and strides. A DLPack exchange, which nb::ndarray makes, costs three times as much.
class View {
public:
    explicit View(nb::handle source) {
        if (PyObject_GetBuffer(source.ptr(), &view_, PyBUF_RECORDS_RO) != 0) throw nb::python_error();
    }
    View(const View&) = delete;
    View& operator=(const View&) = delete;
    ~View() { PyBuffer_Release(&view_); }

    const Py_buffer* operator->() const { return &view_; }
    const std::byte* data() const { return static_cast<const std::byte*>(view_.buf); }
    bool holds(Dtype dtype) const {
        const std::string format = view_.format;
        if (static_cast<std::size_t>(view_.itemsize) != itemsize(dtype) || format.size() != 1) return false;
        return with_type(dtype, [&](auto zero) {
            using T = decltype(zero);
            if constexpr (std::is_same_v<T, bool>) return format == "?";
            // Which of l and q an int64 is depends on the platform; its size has been compared.
            const char* of_kind = std::is_floating_point_v<T> ? "fd" : std::is_signed_v<T> ? "bhilq" : "BHILQ";
            return std::string(of_kind).find(format) != std::string::npos;
        });
    }

private:
    Py_buffer view_{};
};

class PyRolloutWriter {
public:
    PyRolloutWriter(Plane<float> reward, Plane<bool> terminated, Plane<bool> truncated, Plane<bool> valid,
                    const std::vector<std::string>& fields, std::vector<Block> obs, Line<double> episode_return,
                    Line<std::int64_t> episode_length)
        : owners_{std::move(reward), std::move(terminated), std::move(truncated), std::move(valid),
                  std::move(episode_return), std::move(episode_length), std::move(obs)} {
        const auto rows = static_cast<std::int64_t>(owners_.reward.shape(0));
        const std::size_t lanes = owners_.reward.shape(1);
        const auto fits = [&](const auto& array, const std::string& name) {
            require(array.ndim() >= 2 && static_cast<std::int64_t>(array.shape(0)) == rows && array.shape(1) == lanes,
                    name + " does not have reward's rows and lanes");
        };
        fits(owners_.terminated, "terminated");
        fits(owners_.truncated, "truncated");
        fits(owners_.valid, "valid");
        require(owners_.episode_return.shape(0) == lanes && owners_.episode_length.shape(0) == lanes,
                "episode_return and episode_length must be [lanes]");
        require(fields.size() == owners_.obs.size(), "there must be one array for each observation field");
        rollout_ = {rows - 1, static_cast<std::int64_t>(lanes), owners_.reward.data(), owners_.terminated.data(),
                    owners_.truncated.data(), owners_.valid.data(), {}, owners_.episode_return.data(),
                    owners_.episode_length.data()};
        for (std::size_t i = 0; i < fields.size(); ++i) {
            const auto& array = owners_.obs[i];
            fits(array, fields[i]);
            const Dtype dtype = dtype_of(array.dtype(), fields[i]);
            std::vector<std::ptrdiff_t> shape;
            for (std::size_t axis = 1; axis < array.ndim(); ++axis) shape.push_back(static_cast<std::ptrdiff_t>(array.shape(axis)));
            rollout_.obs.push_back({static_cast<std::byte*>(array.data()), array.nbytes() / array.shape(0)});
            names_.push_back({nb::steal(PyUnicode_InternFromString(fields[i].c_str())), dtype, std::move(shape)});
        }
    }

    std::int64_t store_step(std::int64_t t, nb::handle result) {
        if (t < 0 || t >= rollout_.steps)
            throw std::out_of_range("step " + std::to_string(t) + " of " + std::to_string(rollout_.steps));
        if (!result.is(seen_)) look_at(result);
        return store(rollout_, t, step_);
    }

private:
    struct Name {
        nb::object name;
        Dtype dtype;
        std::vector<std::ptrdiff_t> shape;  // of all lanes
    };

    // The order of penstock.types.StepResult.
    void look_at(nb::handle result) {
        seen_.reset();
        require(PyTuple_Check(result.ptr()) && PyTuple_GET_SIZE(result.ptr()) == 6, "the result must be a StepResult");
        PyObject* const* fields = &PyTuple_GET_ITEM(result.ptr(), 0);
        require(PyDict_Check(fields[0]), "obs must be a dict");
        step_.obs.clear();
        for (const Name& field : names_) {
            PyObject* const array = PyDict_GetItemWithError(fields[0], field.name.ptr());
            if (array == nullptr) throw nb::key_error(nb::str(field.name).c_str());
            const View view(array);
            require(view.holds(field.dtype) && std::equal(field.shape.begin(), field.shape.end(), view->shape, view->shape + view->ndim),
                    std::string("obs ") + nb::str(field.name).c_str() + " does not have the dtype and shape of the rollout's");
            step_.obs.emplace_back(view.data(), static_cast<std::size_t>(view->itemsize), static_cast<std::size_t>(view->ndim),
                                   view->shape, view->strides);
        }
        step_.reward = per_lane<float>(fields[1], Dtype::f32, "reward");
        step_.terminated = per_lane<bool>(fields[2], Dtype::boolean, "terminated");
        step_.truncated = per_lane<bool>(fields[3], Dtype::boolean, "truncated");
        step_.reset = per_lane<bool>(fields[4], Dtype::boolean, "reset");
        seen_ = nb::borrow(result);
    }

    template <typename T>
    PerLane<T> per_lane(nb::handle array, Dtype dtype, const char* name) const {
        const View view(array);
        require(view.holds(dtype) && view->ndim == 1 && view->shape[0] == rollout_.lanes,
                std::string(name) + " does not have its dtype, or not one number a lane");
        return {view.data(), view->strides[0]};
    }

    struct Owners {
        Plane<float> reward;
        Plane<bool> terminated, truncated, valid;
        Line<double> episode_return;
        Line<std::int64_t> episode_length;
        std::vector<Block> obs;
    } owners_;
    RolloutRows rollout_{};
    std::vector<Name> names_;
    StepRows step_{};
    nb::object seen_;  // keeps alive what step_ points to
};

}  // namespace

void bind_rollout(nb::module_& module) {
    using namespace nb::literals;
    nb::class_<PyRolloutWriter>(module, "RolloutWriter")
        .def(nb::init<Plane<float>, Plane<bool>, Plane<bool>, Plane<bool>, const std::vector<std::string>&,
                      std::vector<Block>, Line<double>, Line<std::int64_t>>(),
             "reward"_a, "terminated"_a, "truncated"_a, "valid"_a, "fields"_a, "obs"_a, "episode_return"_a,
             "episode_length"_a)
        .def("store", &PyRolloutWriter::store_step, "t"_a, "result"_a);
}

}  // namespace penstock::kernels
