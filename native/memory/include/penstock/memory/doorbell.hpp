// Doorbells: one 32-bit word a process, on its own cache line. Ringing adds one; who finds nothing to do sleeps until the
// word is no longer the one that it read before it looked for work. So no ring is lost, and none is counted.
//
// A sleep never lasts longer than 100 ms, whatever is asked for, and ends at a signal. Zero-filled memory is valid.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "penstock/memory/fault.hpp"
#include "penstock/memory/words.hpp"

#ifdef __linux__
#include <climits>
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#include <thread>
#endif

namespace penstock::memory {

#ifdef __linux__

// Not the private variants: the sleeper and the ringer are two processes.
inline void sleep_on(const void* word, std::uint32_t seen, std::chrono::nanoseconds limit) {
    constexpr std::int64_t second = 1'000'000'000;
    const timespec timeout{static_cast<time_t>(limit.count() / second), static_cast<long>(limit.count() % second)};
    // Any return is an end of the sleep: rung, changed before (EAGAIN), signal (EINTR), time-out.
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

inline void wake_all(const void* word) { syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

#else

// Without a futex between processes: a nap, then the caller's loop looks again. Costs at most half a millisecond a wake.
inline void sleep_on(const void*, std::uint32_t, std::chrono::nanoseconds limit) {
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(limit, std::chrono::microseconds(500)));
}

inline void wake_all(const void*) {}

#endif

inline void relax_processor() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

template <template <class> class Atomic = std::atomic>
class Doorbells {
  public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::nanoseconds ceiling = std::chrono::milliseconds(100);

    static constexpr std::size_t required(std::size_t count) { return count * sizeof(Bell); }

    explicit Doorbells(void* memory) : bells_(static_cast<Bell*>(memory)) {}

    // True if somebody was asleep, or about to be.
    bool ring(std::size_t index) {
        Bell& bell = bells_[index];
        // seq_cst, here and in the three marked places below: the ringer adds to the word and then looks for sleepers, the
        // sleeper counts itself and then looks at the word. In their single order one of the two comes first, so the
        // sleeper sees the new word or the ringer sees the sleeper; weaker orders would allow neither.
        bell.word.fetch_add(1, std::memory_order_seq_cst);
        PENSTOCK_FAULT_POINT("doorbell.ring.between");
        if (bell.sleepers.load(std::memory_order_seq_cst) == 0) {
            return false;
        }
        // Between the sleeper's look and its sleep the kernel compares the word once more.
        wake_all(&bell.word);
        return true;
    }

    // Read it before looking for work. acquire: what was done before the rings that it counts is visible.
    [[nodiscard]] std::uint32_t word(std::size_t index) const {
        return bells_[index].word.load(std::memory_order_acquire);
    }

    // Counts the caller as a sleeper; true if it may sleep, since the word is still `seen`. Pair with disarm().
    bool arm(std::size_t index, std::uint32_t seen) {
        Bell& bell = bells_[index];
        bell.sleepers.fetch_add(1, std::memory_order_seq_cst);  // see ring()
        PENSTOCK_FAULT_POINT("doorbell.arm.between");
        return bell.word.load(std::memory_order_seq_cst) == seen;  // see ring()
    }

    // relaxed: a ringer that still sees the sleeper wakes nobody, at the cost of a system call.
    void disarm(std::size_t index) { bells_[index].sleepers.fetch_sub(1, std::memory_order_relaxed); }

    // Sleeps until the word is not `seen`, at most min(timeout, 100 ms), after spinning for at most `spin` of it.
    // False where the word has not changed: time-out or signal.
    bool wait(std::size_t index, std::uint32_t seen, std::chrono::nanoseconds timeout, std::chrono::nanoseconds spin) {
        if (word(index) != seen) {
            return true;
        }
        const std::chrono::nanoseconds limit = std::clamp(timeout, std::chrono::nanoseconds(0), ceiling);
        if (spin.count() > 0 && spun(index, seen, Clock::now() + std::min(spin, limit))) {
            return true;
        }
        if (limit.count() == 0) {
            return false;
        }
        if (arm(index, seen)) {
            PENSTOCK_FAULT_POINT("doorbell.wait.before");
            nap(index, seen, limit);
        }
        disarm(index);
        return word(index) != seen;
    }

    // After the process that slept on this bell was killed and reaped: it is no sleeper any more. (A count left too high
    // would cost system calls, never a lost wake.)
    void recover(std::size_t index) { bells_[index].sleepers.store(0, std::memory_order_relaxed); }

    [[nodiscard]] std::uint32_t sleepers(std::size_t index) const {
        return bells_[index].sleepers.load(std::memory_order_relaxed);
    }

  private:
    struct alignas(cache_line) Bell {
        Atomic<std::uint32_t> word;
        Atomic<std::uint32_t> sleepers;
    };

    void nap(std::size_t index, std::uint32_t seen, std::chrono::nanoseconds limit) {
#ifdef __linux__
        sleep_on(&bells_[index].word, seen, limit);
#else
        const Clock::time_point end = Clock::now() + limit;
        for (auto now = Clock::now(); now < end && word(index) == seen; now = Clock::now()) {
            sleep_on(&bells_[index].word, seen, end - now);
        }
#endif
    }

    bool spun(std::size_t index, std::uint32_t seen, Clock::time_point end) const {
        do {
            for (int i = 0; i < 32; ++i) {
                if (word(index) != seen) {
                    return true;
                }
                relax_processor();
            }
        } while (Clock::now() < end);
        return false;
    }

    Bell* bells_;
};

}  // namespace penstock::memory
