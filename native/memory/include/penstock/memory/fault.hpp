// Named fault points: places between two atomic operations where a test lets the process die.
//
// They exist only where PENSTOCK_FAULT_POINTS is defined (the test build); elsewhere the macro is nothing at all.
#pragma once

#ifdef PENSTOCK_FAULT_POINTS

namespace penstock::memory {

using FaultHook = void (*)(const char* name);

// One hook a thread: a test that lets one thread stop half-way leaves the others alone.
inline thread_local FaultHook fault_hook = nullptr;

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
