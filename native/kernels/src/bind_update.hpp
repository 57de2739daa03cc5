// Adds the updates of actor-critics from a stream to the extension module.
#pragma once

#include <nanobind/nanobind.h>

namespace penstock::kernels {

void bind_update(nanobind::module_& module);

}  // namespace penstock::kernels
