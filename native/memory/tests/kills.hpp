// Kills at an exact place: SIGKILL at a named fault point, after an atomic operation, between the words of a payload.
#pragma once

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <unistd.h>

#include "check.hpp"
#include "penstock/memory/fault.hpp"
#include "processes.hpp"

namespace penstock::test {

// std::atomic, with a fault point after each operation.
template <class T>
class Fallible {
  public:
    using Order = std::memory_order;

    [[nodiscard]] T load(Order order = Order::seq_cst) const { return after(atomic_.load(order)); }
    void store(T value, Order order = Order::seq_cst) {
        atomic_.store(value, order);
        after(0);
    }
    T exchange(T value, Order order) { return after(atomic_.exchange(value, order)); }
    T fetch_add(T value, Order order) { return after(atomic_.fetch_add(value, order)); }
    T fetch_sub(T value, Order order) { return after(atomic_.fetch_sub(value, order)); }
    bool compare_exchange_strong(T& expected, T desired, Order success, Order failure) {
        return after(atomic_.compare_exchange_strong(expected, desired, success, failure));
    }

  private:
    template <class Value>
    static Value after(Value value) {
        PENSTOCK_FAULT_POINT("test.atomic.after");
        return value;
    }

    std::atomic<T> atomic_;
};
static_assert(sizeof(Fallible<std::uint64_t>) == sizeof(std::atomic<std::uint64_t>));

// Names of the points at which processes were killed so far.
inline std::set<std::string> killed_at;

struct Place {
    char name[64];
};
inline thread_local Place* dying_at = nullptr;

inline void kill_at_last_point(const char* name) {
    if (points_left-- == 0) {
        std::strncpy(dying_at->name, name, sizeof dying_at->name - 1);
        kill(getpid(), SIGKILL);
    }
}

// Runs the script again and again, in a process of its own, on memory that `prepare` has filled. Kills it at its first
// point, then at its second, and so on. Calls check(memory, name of the point) after each kill. Returns the number of
// points.
template <class Prepare, class Script, class Check>
int kill_at_each_point(std::size_t nbytes, Prepare prepare, Script script, Check check) {
    for (int point = 0;; ++point) {
        const Shared shared(nbytes);
        prepare(shared.get());
        const Shared place(sizeof(Place));
        const int status = reap(start([&] {
            points_left = point;
            dying_at = reinterpret_cast<Place*>(place.get());
            memory::fault_hook = kill_at_last_point;
            script(shared.get());
        }));
        if (ended_well(status)) {
            return point;
        }
        CHECK(was_killed(status));
        const std::string name = reinterpret_cast<const Place*>(place.get())->name;
        killed_at.insert(name);
        check(shared.get(), name);
    }
}

inline void leave_zero(unsigned char*) {}

inline constexpr std::size_t few = 4;  // words of a payload: each has a fault point

// Writes word by word, so that a kill can come in the middle of a payload.
inline void write_payload(std::uint64_t* to, std::uint64_t value) {
    for (std::size_t i = 0; i < few; ++i) {
        to[i] = value + i;
        PENSTOCK_FAULT_POINT("test.payload.word");
    }
}

inline bool holds(const std::uint64_t* payload, std::uint64_t value) {
    for (std::size_t i = 0; i < few; ++i) {
        if (payload[i] != value + i) {
            return false;
        }
    }
    return true;
}

}  // namespace penstock::test
