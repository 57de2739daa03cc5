// The extension penstock.gamecore._native.
#include <cstddef>
#include <optional>
#include <string_view>

#include <nanobind/nanobind.h>

#include "penstock/gamecore/delta.hpp"
#include "penstock/gamecore/row.hpp"

namespace nb = nanobind;

namespace {

std::string_view view(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

nb::object encode(const nb::bytes& base, const nb::bytes& next) {
    const auto delta = penstock::gamecore::encode(view(base), view(next));
    if (!delta) return nb::none();
    return nb::bytes(delta->data(), delta->size());
}

nb::object decode(const nb::bytes& base, const nb::bytes& delta, std::size_t limit) {
    const auto size = penstock::gamecore::result_size(view(base), view(delta), limit);
    if (!size) return nb::none();
    PyObject* result = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(*size));
    if (result == nullptr) nb::raise_python_error();
    penstock::gamecore::decode(view(base), view(delta), PyBytes_AsString(result));
    return nb::steal(result);
}

nb::object read_row(const nb::bytes& body, std::size_t count) {
    // A number takes two bytes at least. So no more memory is taken than a small multiple of what was sent.
    if (count > body.size() / 2) return nb::none();
    PyObject* made = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(count * sizeof(float)));
    if (made == nullptr) nb::raise_python_error();
    const nb::object row = nb::steal(made);
    std::optional<double> reward;
    if (!penstock::gamecore::RowReader(view(body)).read(PyBytes_AsString(made), count, reward)) return nb::none();
    return nb::make_tuple(row, reward ? nb::float_(*reward) : nb::object(nb::none()));
}

}  // namespace

NB_MODULE(_native, module) {
    module.doc() = "Bodies of Gamecore: their deltas, and the numbers of observations in JSON.";
    module.def("encode", &encode);
    module.def("decode", &decode);
    module.def("read_row", &read_row);
}
