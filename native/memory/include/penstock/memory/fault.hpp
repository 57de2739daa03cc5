// Named fault points: places between two atomic operations where a test can end the process.
//
// They exist only if PENSTOCK_FAULT_POINTS is defined; otherwise the macro expands to nothing. In the unit tests a hook
// decides what happens at a point. In the extension (PENSTOCK_FAULT_ENVIRONMENT) environment variables decide.
#pragma once

#ifdef PENSTOCK_FAULT_POINTS

#ifdef PENSTOCK_FAULT_ENVIRONMENT
#include "penstock/memory/fault_environment.hpp"
#endif

namespace penstock::memory {

using FaultHook = void (*)(const char* name);

// Each thread has its own hook. So a test can stop one thread half-way without disturbing the others.
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
