// The extension penstock.memory._native.
#include "binding.hpp"

#include <string>
#include <system_error>

#include <nanobind/nanobind.h>

#include "buffer.hpp"
#include "penstock/memory/lifeline.hpp"

namespace {

void watch(int fd, int code) {
    try {
        penstock::memory::watch_lifeline(fd, code);
    } catch (const std::system_error& error) {
        penstock::memory::raise(
            "ResourceError", "cannot watch descriptor " + std::to_string(fd) + ": " + error.code().message());
    }
}

}  // namespace

NB_MODULE(_native, module) {
    module.doc() = "Lock-free structures in shared memory.";
    // A thread of another library, such as Ray's, may hold an end of an edge until the process ends.
    nanobind::set_leak_warnings(false);
    penstock::memory::bind_flow(module);
    penstock::memory::bind_records(module);
    penstock::memory::bind_table(module);
    penstock::memory::bind_rounds(module);
    module.def("watch_lifeline", &watch);
}
