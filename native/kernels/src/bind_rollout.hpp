// Adds RolloutWriter to the extension module.
#pragma once

#include <nanobind/nanobind.h>

namespace penstock::kernels {

void bind_rollout(nanobind::module_& module);

}  // namespace penstock::kernels
