// Binds the updates of algorithms that learn from a table.
#pragma once

#include <nanobind/nanobind.h>

namespace penstock::kernels {

void bind_replay(nanobind::module_& module);

}  // namespace penstock::kernels
