// How often this program has called operator new, in any of its forms.
#pragma once

#include <atomic>
#include <cstddef>

namespace penstock::test {

extern std::atomic<std::size_t> allocations;

}  // namespace penstock::test
