#include "penstock/memory/counters.hpp"

#include <thread>
#include <vector>

#include "check.hpp"

using penstock::memory::Counters;
using penstock::test::Memory;

TEST(counters, rows_have_cache_lines_of_their_own) {
    CHECK(Counters<>::required(3, 1) == 3 * 64);
    CHECK(Counters<>::required(3, 8) == 3 * 64);
    CHECK(Counters<>::required(3, 9) == 3 * 128);
    const Memory memory(Counters<>::required(3, 9));
    Counters<> counters(memory.get(), 9);
    counters.set(2, 8, -5);
    counters.add(2, 8, 2);
    CHECK(counters.get(2, 8) == -3 && counters.get(1, 8) == 0 && counters.get(2, 7) == 0);
}

TEST(counters, threads_add_up) {
    const Memory memory(Counters<>::required(1, 2));
    const auto count = [&] {
        Counters<> counters(memory.get(), 2);
        for (int i = 0; i < 10000; ++i) {
            counters.add(0, 1, 3);
        }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back(count);
    }
    for (auto& thread : threads) {
        thread.join();
    }
    CHECK(Counters<>(memory.get(), 2).get(0, 1) == 4 * 10000 * 3);
}

TEST(counters, more_never_arrives_than_left) {
    const Memory memory(Counters<>::required(1, 2));
    std::thread mover([&] {
        Counters<> counters(memory.get(), 2);
        for (int i = 0; i < 20000; ++i) {
            counters.add(0, 0, 1);
            counters.add(0, 1, 1);
        }
    });
    const Counters<> counters(memory.get(), 2);
    std::int64_t arrived = 0;
    while (arrived < 20000) {
        arrived = counters.get(0, 1);
        CHECK(counters.get(0, 0) >= arrived);
    }
    mover.join();
}
