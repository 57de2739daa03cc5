// The most that a processor computes: fused multiply-adds of float32 in registers, on so many threads.
//
//     build/benchmarks/peak 2          # operations per second: an addition and a multiplication are two
//
// `python -m benchmarks.peak` builds and starts it. It must be built for the processor at hand.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

// The widest vectors, and as many sums as the registers hold beside two operands. A unit that needs four cycles for a
// sum needs four of them at a time; processors have two to four units.
#if defined(__AVX512F__)
constexpr int kLanes = 16, kSums = 24;
#elif defined(__AVX__)
constexpr int kLanes = 8, kSums = 12;
#else
constexpr int kLanes = 4, kSums = 24;
#endif
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));

constexpr int kTurns = 2'000'000, kRounds = 25;

// Not known to the compiler, so that it computes every sum.
volatile float scale = 0.999F, added = 0.001F;

void work() {
    const Lanes by = Lanes{} + scale, more = Lanes{} + added;
    // All differ, so that none stands for another.
    Lanes sums[kSums];
    for (Lanes& sum : sums) {
        sum = Lanes{} + added * static_cast<float>(&sum - sums);
    }
    for (int turn = 0; turn < kTurns; ++turn) {
#pragma GCC unroll 24
        for (Lanes& sum : sums) {
            sum = sum * by + more;
        }
    }
    Lanes total{};
    for (const Lanes& sum : sums) {
        total += sum;
    }
    const volatile float kept = total[0];
    static_cast<void>(kept);
}

double seconds_of(int threads) {
    const auto begun = std::chrono::steady_clock::now();
    std::vector<std::thread> others;
    for (int other = 1; other < threads; ++other) {
        others.emplace_back(work);
    }
    work();
    for (std::thread& other : others) {
        other.join();
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

}  // namespace

int main(int count, char** arguments) {
    const int threads = count == 2 ? std::atoi(arguments[1]) : 0;
    if (threads < 1) {
        std::fprintf(stderr, "usage: peak THREADS\n");
        return 2;
    }
    double least = seconds_of(threads);
    for (int round = 1; round < kRounds; ++round) {
        least = std::min(least, seconds_of(threads));
    }
    std::printf("%.0f\n", 2.0 * kLanes * kSums * kTurns * threads / least);
    return 0;
}
