// Rows of arrays as plain pointers: where row i of a field begins, and how to read or write its numbers.
// Owns nothing and checks nothing: the binding has checked the arrays.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

namespace penstock::kernels {

enum class Dtype : std::int32_t { f32, f64, u8, i8, u16, i16, u32, i32, u64, i64, boolean };

struct Rows {
    std::byte* data = nullptr;  // nullptr: not wanted
    std::ptrdiff_t stride = 0;  // bytes from one row to the next; the numbers of a row are contiguous
    Dtype dtype = Dtype::f32;

    explicit operator bool() const { return data != nullptr; }
    std::byte* row(std::int64_t index) const { return data + index * stride; }
    template <typename T>
    T& at(std::int64_t index) const {
        return *reinterpret_cast<T*>(row(index));
    }
    Rows from(std::int64_t index) const { return {data == nullptr ? nullptr : row(index), stride, dtype}; }
};

// Calls `use` with a value of the dtype's C++ type.
template <typename Use>
auto with_type(Dtype dtype, Use&& use) {
    switch (dtype) {
        case Dtype::f64: return use(double{});
        case Dtype::u8: return use(std::uint8_t{});
        case Dtype::i8: return use(std::int8_t{});
        case Dtype::u16: return use(std::uint16_t{});
        case Dtype::i16: return use(std::int16_t{});
        case Dtype::u32: return use(std::uint32_t{});
        case Dtype::i32: return use(std::int32_t{});
        case Dtype::u64: return use(std::uint64_t{});
        case Dtype::i64: return use(std::int64_t{});
        case Dtype::boolean: return use(bool{});
        case Dtype::f32: break;
    }
    return use(float{});
}

inline void read_floats(const std::byte* from, Dtype dtype, std::int32_t count, float* to) {
    if (dtype == Dtype::f32) {
        std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
        return;
    }
    with_type(dtype, [&](auto zero) {
        const auto* values = reinterpret_cast<const decltype(zero)*>(from);
        for (std::int32_t i = 0; i < count; ++i) to[i] = static_cast<float>(values[i]);
    });
}

inline std::int64_t read_integer(const std::byte* from, Dtype dtype) {
    return with_type(dtype, [&](auto zero) {
        return static_cast<std::int64_t>(*reinterpret_cast<const decltype(zero)*>(from));
    });
}

// Integers are rounded to the nearest, ties to even, and at most the largest double of their type. NaN becomes `otherwise`.
inline void write_number(std::byte* to, Dtype dtype, std::int32_t index, double value, double otherwise) {
    with_type(dtype, [&](auto zero) {
        using T = decltype(zero);
        auto& target = reinterpret_cast<T*>(to)[index];
        if constexpr (std::is_floating_point_v<T>)
            target = static_cast<T>(value);
        else {
            // The bound 2^63 - 1 is 2^63 as a double, which no integer of 64 bits holds.
            const double largest = std::nextafter(std::ldexp(1.0, std::numeric_limits<T>::digits), 0.0);
            target = static_cast<T>(std::min(std::nearbyint(std::isnan(value) ? otherwise : value), largest));
        }
    });
}

}  // namespace penstock::kernels
