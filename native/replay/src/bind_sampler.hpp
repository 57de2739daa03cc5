// Python's view of drawing from a table. Checks what it is given; no protocol lives there.
#pragma once

#include <nanobind/nanobind.h>

namespace penstock::replay {

void bind_sampler(nanobind::module_& module);

}  // namespace penstock::replay
