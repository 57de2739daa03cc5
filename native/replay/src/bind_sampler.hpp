// The Python class that samples from a table. It checks its arguments; the protocols are in the headers.
#pragma once

#include <nanobind/nanobind.h>

namespace penstock::replay {

void bind_sampler(nanobind::module_& module);
void bind_minibatches(nanobind::module_& module);

}  // namespace penstock::replay
