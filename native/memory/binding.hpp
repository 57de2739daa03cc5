// The parts of the extension. Each Python class holds the buffer of its structure, checks its arguments, and turns
// refusals into penstock's exceptions. The protocols are in the headers, not here.
#pragma once

#include <nanobind/nanobind.h>

namespace penstock::memory {

void bind_flow(nanobind::module_& module);
void bind_records(nanobind::module_& module);
void bind_table(nanobind::module_& module);
void bind_rounds(nanobind::module_& module);

}  // namespace penstock::memory
