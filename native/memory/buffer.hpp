// Python buffers and exceptions, for the binding. Knows no structure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include <nanobind/nanobind.h>

#include "penstock/memory/words.hpp"

namespace penstock::memory {

namespace nb = nanobind;

[[noreturn]] inline void raise(const char* type, const std::string& text) {
    const nb::object error = nb::module_::import_("penstock.errors").attr(type);
    PyErr_SetString(error.ptr(), text.c_str());
    throw nb::python_error();
}

// A contiguous Python buffer, held while this object lives. The buffer protocol costs a third of a DLPack exchange.
class Buffer {
  public:
    static constexpr int readable = PyBUF_SIMPLE;
    static constexpr int writable = PyBUF_WRITABLE;

    // An array that is only read may be strided. This object then holds a contiguous copy.
    Buffer(nb::handle source, int access) {
        if (PyObject_GetBuffer(source.ptr(), &view_, access) == 0) {
            return;
        }
        if (access != readable) {
            throw nb::python_error();
        }
        PyErr_Clear();
        const nb::object copy = nb::module_::import_("numpy").attr("ascontiguousarray")(source);
        if (PyObject_GetBuffer(copy.ptr(), &view_, access) != 0) {
            throw nb::python_error();
        }
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    Buffer(Buffer&& other) noexcept : view_(std::exchange(other.view_, Py_buffer{})) {}
    Buffer& operator=(Buffer&&) = delete;
    ~Buffer() { PyBuffer_Release(&view_); }

    [[nodiscard]] unsigned char* data() const { return static_cast<unsigned char*>(view_.buf); }
    [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(view_.len); }

  private:
    Py_buffer view_{};
};

// The memory of a structure: big enough, and aligned to cache lines.
inline Buffer structure_memory(const char* structure, nb::handle bytes, int access, std::size_t required) {
    Buffer buffer(bytes, access);
    if (buffer.size() < required) {
        raise("ResourceError", std::string(structure) + " needs " + std::to_string(required) + " bytes, its memory has " +
                                   std::to_string(buffer.size()));
    }
    if (reinterpret_cast<std::uintptr_t>(buffer.data()) % cache_line != 0) {
        raise("ResourceError", std::string(structure) + " needs memory that starts at a multiple of 64 bytes");
    }
    return buffer;
}

inline void check_index(const char* what, std::size_t index, std::size_t count) {
    if (index >= count) {
        throw nb::index_error((std::string(what) + " " + std::to_string(index) + " of " + std::to_string(count)).c_str());
    }
}

inline void check_size(const char* what, std::size_t size, std::size_t expected) {
    if (size != expected) {
        throw nb::value_error((std::string(what) + " has " + std::to_string(size) + " bytes, not " +
                               std::to_string(expected)).c_str());
    }
}

}  // namespace penstock::memory
