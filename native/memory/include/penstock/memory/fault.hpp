// Named fault points: places between two atomic operations where a test lets the process die.
//
// They exist only where PENSTOCK_FAULT_POINTS is defined; elsewhere the macro is nothing at all. In the unit tests a hook
// says what happens at a point; in the extension (PENSTOCK_FAULT_ENVIRONMENT) the environment does.
#pragma once

#ifdef PENSTOCK_FAULT_POINTS

#ifdef PENSTOCK_FAULT_ENVIRONMENT
#include "penstock/memory/fault_environment.hpp"
#endif

namespace penstock::memory {

using FaultHook = void (*)(const char* name);

// One hook a thread: a test that lets one thread stop half-way leaves the others alone.
#ifdef PENSTOCK_FAULT_ENVIRONMENT
inline thread_local FaultHook fault_hook = die_where_asked;
#else
inline thread_local FaultHook fault_hook = nullptr;
#endif

inline void fault_point(const char* name) {
    if (fault_hook != nullptr) {
        fault_hook(name);
    }
}

}  // namespace penstock::memory

#define PENSTOCK_FAULT_POINT(name) ::penstock::memory::fault_point(name)

#else

#define PENSTOCK_FAULT_POINT(name) static_cast<void>(0)

#endif
