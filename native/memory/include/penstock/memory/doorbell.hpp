// Doorbells: one 32-bit word for each process, on its own cache line. Ringing adds one to the word.
//
//   1. A process reads the word of its bell.
//   2. It looks for work.
//   3. If there is none, it sleeps until the word is no longer the one of step 1.
//
// So no ring is lost. Several rings may wake the process only once.
//
// A sleep lasts at most 100 ms, and a signal ends it. Zero-filled memory is valid.
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

// The futex calls are not the private ones, because sleeper and ringer are two processes.
inline void sleep_on(const void* word, std::uint32_t seen, std::chrono::nanoseconds limit) {
    constexpr std::int64_t second = 1'000'000'000;
    const timespec timeout{static_cast<time_t>(limit.count() / second), static_cast<long>(limit.count() % second)};
    // Each return ends the sleep: a ring, a word that had changed before (EAGAIN), a signal (EINTR), a time-out.
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

inline void wake_all(const void* word) { syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

#else

// For systems without a futex between processes: sleep for a short time, then the caller's loop looks again. A wake-up
// takes at most half a millisecond longer.
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

    // True if a process slept on the bell, or was about to.
    bool ring(std::size_t index) {
        Bell& bell = bells_[index];
        // seq_cst, here and in the three marked places below:
        //   1. The ringer adds to the word, then reads the number of sleepers.
        //   2. The sleeper adds to the number of sleepers, then reads the word.
        //   3. seq_cst puts all four operations into one order. So the sleeper sees the new word, or the ringer sees the
        //      sleeper. With weaker orders it could happen that neither sees the other.
        bell.word.fetch_add(1, std::memory_order_seq_cst);
        PENSTOCK_FAULT_POINT("doorbell.ring.between");
        if (bell.sleepers.load(std::memory_order_seq_cst) == 0) {
            return false;
        }
        // Race: the word changes after the sleeper has read it and before it sleeps. The kernel compares the word once
        // more before the sleep.
        wake_all(&bell.word);
        return true;
    }

    // Read the word before looking for work. acquire: all work that was handed on before the counted rings is visible.
    [[nodiscard]] std::uint32_t word(std::size_t index) const {
        return bells_[index].word.load(std::memory_order_acquire);
    }

    // Counts the caller as a sleeper. True if the word is still `seen`, so that it may sleep. Call disarm() afterwards.
    bool arm(std::size_t index, std::uint32_t seen) {
        Bell& bell = bells_[index];
        bell.sleepers.fetch_add(1, std::memory_order_seq_cst);  // see ring()
        PENSTOCK_FAULT_POINT("doorbell.arm.between");
        return bell.word.load(std::memory_order_seq_cst) == seen;  // see ring()
    }

    // relaxed: a ringer that still sees the sleeper makes a system call that wakes no process. That is harmless.
    void disarm(std::size_t index) { bells_[index].sleepers.fetch_sub(1, std::memory_order_relaxed); }

    // Waits until the word is not `seen`, for at most min(timeout, 100 ms). Spins for at most `spin` of that time, then
    // sleeps. False if the word has not changed: a time-out or a signal ended the wait.
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

    // Call it after the process of this bell was killed and reaped: the process is no sleeper any more. Without this call
    // the count stays too high. That costs system calls, but loses no wake-up.
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
