#include "penstock/memory/doorbell.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "check.hpp"

using penstock::memory::Doorbells;
using penstock::test::Memory;
using namespace std::chrono_literals;

TEST(doorbell, a_ring_changes_the_word_of_one_bell) {
    const Memory memory(Doorbells<>::required(2));
    Doorbells<> bells(memory.get());
    CHECK(!bells.ring(1));  // no process sleeps, so there is no system call
    CHECK(bells.word(0) == 0 && bells.word(1) == 1);
    CHECK(bells.wait(1, 0, 100ms, 0ns));
    CHECK(!bells.wait(1, 1, 0ns, 0ns));
    CHECK(!bells.wait(1, 1, 1ms, 200us));
    CHECK(bells.sleepers(1) == 0);
}

TEST(doorbell, words_wrap_round) {
    const Memory memory(Doorbells<>::required(1));
    *reinterpret_cast<std::uint32_t*>(memory.get()) = 0xFFFF'FFFFU;
    Doorbells<> bells(memory.get());
    CHECK(bells.word(0) == 0xFFFF'FFFFU);
    bells.ring(0);
    CHECK(bells.word(0) == 0 && bells.wait(0, 0xFFFF'FFFFU, 100ms, 0ns));
}

namespace {

Doorbells<>* rung = nullptr;
const char* ring_at = nullptr;
int rings = 0;

void ring_once(const char* point) {
    if (ring_at != nullptr && std::string(point) == ring_at) {
        ring_at = nullptr;
        CHECK(rung->ring(0));  // it sees the sleeper
        ++rings;
    }
}

}  // namespace

// A lost wake-up would only show as a sleep of 100 ms. So the test rings exactly where a ring could be lost, and then the
// sleep must not begin. The kernel counts sleeps; the test uses no clock.
TEST(doorbell, a_ring_between_the_look_and_the_sleep_is_not_lost) {
    for (const char* point : {"doorbell.arm.between", "doorbell.wait.before"}) {
        const Memory memory(Doorbells<>::required(1));
        Doorbells<> bells(memory.get());
        rung = &bells;
        ring_at = point;
        penstock::memory::fault_hook = ring_once;
        CHECK(bells.wait(0, 0, 100ms, 0ns));
        penstock::memory::fault_hook = nullptr;
        CHECK(ring_at == nullptr && bells.sleepers(0) == 0);
    }
    CHECK(rings == 2);
}

namespace {

bool slept = false;

void arm_at_ring(const char* point) {
    if (std::string(point) == "doorbell.ring.between") {
        slept = rung->arm(0, 0);
    }
}

}  // namespace

TEST(doorbell, a_sleeper_that_comes_between_the_ring_and_its_look_stays_awake) {
    const Memory memory(Doorbells<>::required(1));
    Doorbells<> bells(memory.get());
    rung = &bells;
    slept = true;
    penstock::memory::fault_hook = arm_at_ring;
    CHECK(bells.ring(0));
    penstock::memory::fault_hook = nullptr;
    CHECK(!slept);
    bells.disarm(0);
}

TEST(doorbell, threads_wake_each_other) {
    const Memory memory(Doorbells<>::required(2));
    std::uint64_t ball = 0;  // plain memory: the bell makes it visible
    constexpr std::uint64_t rounds = 4000;
    const auto play = [&](std::size_t own, std::chrono::nanoseconds spin) {
        Doorbells<> bells(memory.get());
        std::uint32_t seen = 0;
        for (std::uint64_t round = own; round < rounds; round += 2) {
            while (round != 0 && bells.word(own) == seen) {
                bells.wait(own, seen, 100ms, spin);
            }
            seen = bells.word(own);
            CHECK(ball == round);
            ++ball;
            bells.ring(1 - own);
        }
    };
    std::thread first(play, 0, 0ns);
    std::thread second(play, 1, 5us);
    first.join();
    second.join();
    CHECK(ball == rounds);
}

TEST(doorbell, a_dead_sleeper_is_forgotten) {
    const Memory memory(Doorbells<>::required(1));
    Doorbells<> bells(memory.get());
    CHECK(bells.arm(0, 0));  // and never disarms
    CHECK(bells.ring(0));
    bells.recover(0);
    CHECK(!bells.ring(0));
}
