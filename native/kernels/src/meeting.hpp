// Two threads meet here once in each minibatch and exchange a number. It is no lock: it guards only the number.
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
    // Thread `side` (0 or 1) brings `value` to meeting `number` (1, 2, ...) and gets the value of the other thread.
    double exchange(int side, std::uint64_t number, double value) {
        // Each side has two places and uses them in turn. Why the other thread always reads the right value:
        //   1. A thread may bring its next value while the other still reads this one: it goes into the other place.
        //   2. Before it brings the value after that, it has met the other at the next meeting. So the other has read this
        //      one.
        Place& mine = places_[side][number % 2];
        Place& other = places_[1 - side][number % 2];
        mine.value = value;
        // release: a thread that sees the number sees the value.
        mine.number.store(number, std::memory_order_release);
        // acquire: pairs with the release of the other thread.
        for (int spins = 0; other.number.load(std::memory_order_acquire) != number; ++spins) {
            if (spins < 2000)
                pause();
            else
                std::this_thread::yield();  // the other thread may not have a core
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

// One thread's place at a meeting.
struct Seat {
    Meeting& meeting;
    int side;
    std::uint64_t met = 0;

    // Brings a number to the next meeting, and gets the other thread's.
    double exchange(double value) { return meeting.exchange(side, ++met, value); }
};

}  // namespace penstock::kernels
