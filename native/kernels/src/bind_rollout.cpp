// The Python class of the rollout writer. It checks a slot's arrays once, and a source's arrays each time they change.
#include "bind_rollout.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <span>

#include "arrays.hpp"
#include "rollout.hpp"

namespace penstock::kernels {
namespace {

using Block = nb::ndarray<nb::c_contig, nb::device::cpu>;

// Never a converted copy: the rows must be written into the caller's array.
Block block(nb::handle array) { return nb::cast<Block>(array, false); }

// A Python buffer with its strides. A DLPack exchange, as nb::ndarray does it, costs three times as much. A request that
// includes the format costs twice as much, because NumPy writes a string for it. NumPy's dtypes are objects that exist
// once, so they are compared instead.
class View {
public:
    explicit View(nb::handle source) : source_(source) {
        if (PyObject_GetBuffer(source.ptr(), &view_, PyBUF_STRIDED_RO) != 0) throw nb::python_error();
    }
    View(const View&) = delete;
    View& operator=(const View&) = delete;
    ~View() { PyBuffer_Release(&view_); }

    const std::byte* data() const { return static_cast<const std::byte*>(view_.buf); }
    std::span<const std::ptrdiff_t> shape() const { return {view_.shape, static_cast<std::size_t>(view_.ndim)}; }
    const std::ptrdiff_t* strides() const { return view_.strides; }
    std::size_t item_nbytes() const { return static_cast<std::size_t>(view_.itemsize); }
    bool holds(nb::handle dtype) const {
        static PyObject* const name = PyUnicode_InternFromString("dtype");
        const nb::object own = source_.attr(nb::handle(name));
        return own.is(dtype) || own.equal(dtype);
    }

private:
    nb::handle source_;
    Py_buffer view_{};
};

// The error text is built only when it is needed. `require` would build it for every array of every vector step.
[[noreturn]] void refuse(const char* what, const std::string& why) { throw std::invalid_argument(what + why); }

struct ObsField {
    nb::object name;
    nb::object dtype;
    std::vector<std::ptrdiff_t> shape;  // [B, ...]
};

// A dict with one array for each field, of the same dtypes and shapes as the rollout's arrays.
std::vector<LaneArray> lane_arrays(nb::handle arrays, const std::vector<ObsField>& fields, const char* what) {
    if (!PyDict_Check(arrays.ptr())) refuse(what, " must be a dict");
    std::vector<LaneArray> found;
    for (const ObsField& field : fields) {
        PyObject* const array = PyDict_GetItemWithError(arrays.ptr(), field.name.ptr());
        if (array == nullptr) throw nb::key_error(nb::str(field.name).c_str());
        const View view(array);
        if (!view.holds(field.dtype) || !std::ranges::equal(view.shape(), field.shape))
            refuse(what, std::string(" ") + nb::str(field.name).c_str() + " does not have the dtype and shape of the rollout's");
        found.emplace_back(view.data(), view.item_nbytes(), view.shape().size(), view.shape().data(), view.strides());
    }
    return found;
}

class PyRolloutWriter {
public:
    // Takes the slot's arrays by name, the names of the observation fields, and the running episodes.
    PyRolloutWriter(nb::dict slot, const std::vector<std::string>& fields, bool same_step, Block running_return,
                    Block running_length)
        : float32_(slot["reward"].attr("dtype")), bool_(slot["valid"].attr("dtype")) {
        const Block reward = block(slot["reward"]);
        require(reward.ndim() == 2 && reward.shape(0) > 0, "reward must be [T + 1, lanes]");
        const std::vector<std::size_t> rows{reward.shape(0), reward.shape(1)}, side{(rows[0] - 1) * rows[1]};
        const auto named = [&](const char* name, const std::vector<std::size_t>& shape, auto zero) {
            return take(block(slot[name]), name, shape, zero);
        };
        rollout_ = {.steps = static_cast<std::int64_t>(rows[0]) - 1,
                    .lanes = static_cast<std::int64_t>(rows[1]),
                    .room = static_cast<std::int64_t>(side[0]),
                    .same_step = same_step,
                    .reward = named("reward", rows, float{}),
                    .terminated = named("terminated", rows, bool{}),
                    .truncated = named("truncated", rows, bool{}),
                    .valid = named("valid", rows, bool{}),
                    .obs = {},
                    .final_count = named("final_count", {}, std::int64_t{}),
                    .final_t = named("final_t", side, std::int64_t{}),
                    .final_lane = named("final_lane", side, std::int64_t{}),
                    .episode_count = named("episode_count", {}, std::int64_t{}),
                    .episode_return = named("episode_return", side, double{}),
                    .episode_length = named("episode_length", side, std::int64_t{}),
                    .running_return = take(std::move(running_return), "running_return", {rows[1]}, double{}),
                    .running_length = take(std::move(running_length), "running_length", {rows[1]}, std::int64_t{})};
        for (const std::string& name : fields) add_field(slot, name, rows, side[0]);
    }

    nb::tuple store(std::int64_t t, nb::handle result) {
        if (t < 0 || t >= rollout_.steps)
            throw std::out_of_range("step " + std::to_string(t) + " of " + std::to_string(rollout_.steps));
        if (!result.is(seen_)) look_at(result);
        begun_.clear();
        rollout_.store(t, step_, begun_);
        nb::object lanes = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(begun_.size())));
        for (std::size_t i = 0; i < begun_.size(); ++i)
            PyTuple_SET_ITEM(lanes.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(begun_[i]));
        return nb::borrow<nb::tuple>(lanes);
    }

private:
    template <typename T>
    T* take(Block array, const std::string& name, const std::vector<std::size_t>& shape, T) {
        bool fits = array.dtype() == nb::dtype<T>() && array.ndim() == shape.size();
        for (std::size_t axis = 0; fits && axis < shape.size(); ++axis) fits = array.shape(axis) == shape[axis];
        require(fits, name + " does not have its dtype, or the shape that goes with reward's");
        owners_.push_back(array);
        return static_cast<T*>(array.data());
    }

    void add_field(nb::dict slot, const std::string& name, const std::vector<std::size_t>& rows, std::size_t room) {
        const Block array = block(slot[name.c_str()]);
        require(array.ndim() >= 2 && array.shape(0) == rows[0] && array.shape(1) == rows[1],
                name + " does not have reward's rows and lanes");
        std::vector<std::ptrdiff_t> shape;
        for (std::size_t axis = 1; axis < array.ndim(); ++axis) shape.push_back(static_cast<std::ptrdiff_t>(array.shape(axis)));
        const std::size_t lane_nbytes = array.nbytes() / (rows[0] * rows[1]);
        std::byte* finals = nullptr;
        if (rollout_.same_step) {
            const std::string final_name = "final." + name;
            const Block side = block(slot[final_name.c_str()]);
            require(side.dtype() == array.dtype() && side.ndim() >= 1 && side.shape(0) == room && side.nbytes() == room * lane_nbytes,
                    final_name + " does not have the dtype or shape of " + name);
            finals = static_cast<std::byte*>(side.data());
            owners_.push_back(side);
        }
        rollout_.obs.push_back({static_cast<std::byte*>(array.data()), finals, lane_nbytes});
        fields_.push_back({nb::steal(PyUnicode_InternFromString(name.c_str())), slot[name.c_str()].attr("dtype"), std::move(shape)});
        owners_.push_back(array);
    }

    void look_at(nb::handle result) {
        seen_.reset();
        if (!PyTuple_Check(result.ptr()) || PyTuple_GET_SIZE(result.ptr()) != 6) refuse("the result", " must be a StepResult");
        // The order of penstock.types.StepResult.
        const auto field = [&](Py_ssize_t index) { return nb::handle(PyTuple_GET_ITEM(result.ptr(), index)); };
        step_ = {.reward = per_lane<float>(field(1), float32_, "reward"),
                 .terminated = per_lane<bool>(field(2), bool_, "terminated"),
                 .truncated = per_lane<bool>(field(3), bool_, "truncated"),
                 .reset = per_lane<bool>(field(4), bool_, "reset"),
                 .obs = lane_arrays(field(0), fields_, "obs"),
                 .final_obs = {}};
        if (rollout_.same_step) step_.final_obs = lane_arrays(field(5), fields_, "final_obs");
        seen_ = nb::borrow(result);
    }

    template <typename T>
    PerLane<T> per_lane(nb::handle array, nb::handle dtype, const char* name) const {
        const View view(array);
        if (!view.holds(dtype) || view.shape().size() != 1 || view.shape()[0] != rollout_.lanes)
            refuse(name, " does not have its dtype, or not one number a lane");
        return {view.data(), view.strides()[0]};
    }

    nb::object float32_, bool_;
    RolloutRows rollout_{};
    std::vector<ObsField> fields_;
    std::vector<Block> owners_;
    StepRows step_{};
    nb::object seen_;  // keeps the arrays alive that step_ points to
    std::vector<std::int64_t> begun_;
};

}  // namespace

void bind_rollout(nb::module_& module) {
    using namespace nb::literals;
    nb::class_<PyRolloutWriter>(module, "RolloutWriter")
        .def(nb::init<nb::dict, const std::vector<std::string>&, bool, Block, Block>(), "slot"_a, "fields"_a, "same_step"_a,
             nb::arg("running_return").noconvert(), nb::arg("running_length").noconvert())
        .def("store", &PyRolloutWriter::store, "t"_a, "result"_a);
}

}  // namespace penstock::kernels
