// The parts of the extension. Each class of Python holds the buffer that its structure lies in, checks what it is given, and
// turns refusals into penstock's exceptions. No protocol lives there.
#pragma once

#include <nanobind/nanobind.h>

namespace penstock::memory {

void bind_flow(nanobind::module_& module);
void bind_records(nanobind::module_& module);
void bind_table(nanobind::module_& module);
void bind_rounds(nanobind::module_& module);

}  // namespace penstock::memory
