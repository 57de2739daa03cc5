// Adds the recurrent cells over a sequence to the extension module.
#pragma once

#include <nanobind/nanobind.h>

namespace penstock::kernels {

void bind_sequence(nanobind::module_& module);

}  // namespace penstock::kernels
