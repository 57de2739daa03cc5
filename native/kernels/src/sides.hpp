// The work of a gradient step as halves, for one thread or two. Both halves are the same work on one thread, one after the
// other. So the bits do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <thread>
#include <utility>

#include "meeting.hpp"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace penstock::kernels {

inline constexpr int kSides = 2;

// Numbers below 1.2e-38 count as 0 while it lives: processors are slow with them. Moments of weights without gradient
// shrink until they are that small.
class WithoutTiny {
public:
#if defined(__x86_64__)
    WithoutTiny() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040U); }  // flush results, and read inputs as 0
    ~WithoutTiny() { _mm_setcsr(before_); }
#elif defined(__aarch64__)
    WithoutTiny() {
        asm volatile("mrs %0, fpcr" : "=r"(before_));
        asm volatile("msr fpcr, %0" : : "r"(before_ | (std::uint64_t{1} << 24)));
    }
    ~WithoutTiny() { asm volatile("msr fpcr, %0" : : "r"(before_)); }
#else
    WithoutTiny() = default;
#endif
    WithoutTiny(const WithoutTiny&) = delete;
    WithoutTiny& operator=(const WithoutTiny&) = delete;

private:
#if defined(__x86_64__)
    unsigned before_;
#elif defined(__aarch64__)
    std::uint64_t before_ = 0;
#endif
};

// What one thread does of the work: both halves, or one.
class Sides {
public:
    Sides() = default;
    Sides(int side, Meeting& meeting) : side_(side), meeting_(&meeting) {}

    // Runs work(side) for each half. All of it is done when this returns.
    template <typename Work>
    void both(Work&& work) {
        if (meeting_ == nullptr) {
            work(0);
            work(1);
            return;
        }
        work(side_);
        meet();
    }

    // Runs work() once. It is done when this returns.
    template <typename Work>
    void once(Work&& work) {
        if (side_ == 0) work();
        if (meeting_ != nullptr) meet();
    }

    // Calls body(sides) on one thread, or on two that work together.
    template <typename Body>
    static void run(int threads, Body&& body) {
        const WithoutTiny flushed;
        if (threads == 1) {
            Sides alone;
            body(alone);
            return;
        }
        Meeting meeting;
        std::thread other([&] {
            const WithoutTiny flushed_there;
            Sides second(1, meeting);
            body(second);
        });
        Sides first(0, meeting);
        body(first);
        other.join();
    }

private:
    void meet() { meeting_->exchange(side_, ++met_, 0.0); }

    int side_ = 0;
    Meeting* meeting_ = nullptr;
    std::uint64_t met_ = 0;
};

}  // namespace penstock::kernels
