// Where two threads meet once a minibatch and exchange a number. Not a lock: nothing is guarded but the number.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace penstock::kernels {

class Meeting {
public:
    // Thread `side` (0 or 1) brings `value` to meeting `number` (1, 2, ...) and gets the other's.
    double exchange(int side, std::uint64_t number, double value) {
        // Two places a side, used in turn: a thread can bring the next number while the other still reads this one,
        // but not the one after, since for that it must have met the other at the next.
        Place& mine = places_[side][number % 2];
        Place& other = places_[1 - side][number % 2];
        mine.value = value;
        // Release: who sees the number sees the value.
        mine.number.store(number, std::memory_order_release);
        // Acquire: pairs with the other's release.
        for (int spins = 0; other.number.load(std::memory_order_acquire) != number; ++spins) {
            if (spins < 2000)
                pause();
            else
                std::this_thread::yield();  // the other may not be running at all
        }
        return other.value;
    }

private:
    static void pause() {
#if defined(__x86_64__)
        _mm_pause();
#elif defined(__aarch64__)
        asm volatile("yield");
#endif
    }

    struct alignas(64) Place {
        std::atomic<std::uint64_t> number{0};
        double value = 0.0;
    };
    Place places_[2][2];
};

}  // namespace penstock::kernels
