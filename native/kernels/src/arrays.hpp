// Checks NumPy arrays from Python and turns them into plain rows. Copies nothing.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "encoder.hpp"
#include "penstock/kernels/rows.hpp"

namespace penstock::kernels {

namespace nb = nanobind;

using Readable = nb::ndarray<nb::ro>;
using Writable = nb::ndarray<>;
template <typename T, typename... Rest>
using Flat = nb::ndarray<T, nb::c_contig, nb::device::cpu, Rest...>;

inline Dtype dtype_of(nb::dlpack::dtype dtype, const std::string& name) {
    const auto is = [&](nb::dlpack::dtype other) { return dtype == other; };
    if (is(nb::dtype<float>())) return Dtype::f32;
    if (is(nb::dtype<double>())) return Dtype::f64;
    if (is(nb::dtype<std::uint8_t>())) return Dtype::u8;
    if (is(nb::dtype<std::int8_t>())) return Dtype::i8;
    if (is(nb::dtype<std::uint16_t>())) return Dtype::u16;
    if (is(nb::dtype<std::int16_t>())) return Dtype::i16;
    if (is(nb::dtype<std::uint32_t>())) return Dtype::u32;
    if (is(nb::dtype<std::int32_t>())) return Dtype::i32;
    if (is(nb::dtype<std::uint64_t>())) return Dtype::u64;
    if (is(nb::dtype<std::int64_t>())) return Dtype::i64;
    if (is(nb::dtype<bool>())) return Dtype::boolean;
    throw std::invalid_argument(name + " has a dtype that the kernels do not read");
}

template <typename T>
using Line = Flat<T, nb::ndim<1>>;
template <typename T>
using Plane = Flat<T, nb::ndim<2>>;

inline std::size_t itemsize(Dtype dtype) {
    return with_type(dtype, [](auto zero) { return sizeof(zero); });
}

// The numbers behind the first `leading` axes, which must be contiguous.
template <typename Array>
std::int64_t inner_size(const Array& array, std::size_t leading, const std::string& name) {
    if (array.ndim() < leading) throw std::invalid_argument(name + " has too few dimensions");
    std::int64_t size = 1;
    for (std::size_t axis = array.ndim(); axis-- > leading;) {
        const auto extent = static_cast<std::int64_t>(array.shape(axis));
        if (extent != 1 && array.stride(axis) != size)
            throw std::invalid_argument(name + " must be contiguous within a row");
        size *= extent;
    }
    return size;
}

// An array [rows, lanes, ...]. Each call uses row t of it.
struct Field {
    std::byte* data = nullptr;
    std::int64_t rows = 0;
    std::int64_t lanes = 0;
    std::int64_t size = 1;
    std::ptrdiff_t row_stride = 0;
    std::ptrdiff_t lane_stride = 0;
    Dtype dtype = Dtype::f32;

    Rows at(std::int64_t t) const {
        return {data == nullptr ? nullptr : data + t * row_stride, lane_stride, dtype};
    }
};

// `batched` arrays are [rows, lanes, ...]. Other arrays are [lanes, ...], a single row.
template <typename Array>
Field field_of(const Array& array, bool batched, const std::string& name) {
    Field field;
    field.size = inner_size(array, batched ? 2 : 1, name);
    field.dtype = dtype_of(array.dtype(), name);
    const auto bytes = static_cast<std::ptrdiff_t>(itemsize(field.dtype));
    field.rows = batched ? static_cast<std::int64_t>(array.shape(0)) : 1;
    field.lanes = static_cast<std::int64_t>(array.shape(batched ? 1 : 0));
    field.row_stride = batched ? array.stride(0) * bytes : 0;
    field.lane_stride = array.stride(batched ? 1 : 0) * bytes;
    field.data = const_cast<std::byte*>(static_cast<const std::byte*>(static_cast<const void*>(array.data())));
    return field;
}

inline void require(bool holds, const std::string& what) {
    if (!holds) throw std::invalid_argument(what);
}

// An argument that is taken as it is: what is written must not go into a copy, and no pointer may outlive one.
inline auto array(const char* name) { return nb::arg(name).noconvert(); }

// An array of `count` rows of `size` numbers each.
template <typename Array>
Rows rows_of(const Array& array, std::int64_t count, std::int64_t size, const std::string& name) {
    const Field found = field_of(array, false, name);
    require(found.lanes == count && found.size == size, name + " does not have the rows' shape");
    return found.at(0);
}

// One array for each encoding, of `count` rows each.
inline std::vector<Rows> encoded_rows(const std::vector<Readable>& obs, const std::vector<Encoding>& encoding,
                                      std::int64_t count) {
    require(obs.size() == encoding.size(), "there must be one observation array for each encoding");
    std::vector<Rows> fields;
    for (std::size_t i = 0; i < obs.size(); ++i)
        fields.push_back(rows_of(obs[i], count, encoding[i].one_hot ? 1 : encoding[i].size, "observation"));
    return fields;
}

// The actions of `count` rows: float32 numbers, or the number of a choice as int64.
inline Rows action_rows(const Readable& action, bool gaussian, std::int64_t size, std::int64_t count) {
    const Rows found = rows_of(action, count, gaussian ? size : 1, "action");
    require(found.dtype == (gaussian ? Dtype::f32 : Dtype::i64), "action has the wrong dtype");
    return found;
}

}  // namespace penstock::kernels
