// Streams, bells and counters whose processes are killed at each place in turn. After each kill the parent reaps, recovers,
// checks the structure, and goes on.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "check.hpp"
#include "kills.hpp"
#include "penstock/memory/counters.hpp"
#include "penstock/memory/doorbell.hpp"
#include "penstock/memory/slots.hpp"

using namespace penstock::memory;
using namespace penstock::test;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t slots_count = 2;
constexpr std::size_t payload_offset = Slots<>::required(slots_count);
constexpr std::size_t stream_bytes = payload_offset + slots_count * few * sizeof(std::uint64_t);

std::uint64_t* payload(unsigned char* memory, std::size_t index) {
    return reinterpret_cast<std::uint64_t*>(memory + payload_offset) + index * few;
}

template <template <class> class Atomic>
void send(unsigned char* memory, std::uint64_t owner, std::uint64_t sequence) {
    Slots<Atomic> slots(memory, slots_count);
    const auto index = slots.claim(owner, sequence);
    CHECK(index);
    write_payload(payload(memory, *index), 100 * sequence);
    CHECK(slots.push(*index, owner));
}

// Takes all ready slots, checks that they come in order and whole, and frees them.
void drain(unsigned char* memory, std::uint64_t owner) {
    Slots<> slots(memory, slots_count);
    std::uint64_t last = 0;
    while (const auto index = slots.take(owner)) {
        const std::uint64_t sequence = slots.word(*index).sequence;
        CHECK(sequence > last && holds(payload(memory, *index), 100 * sequence));
        last = sequence;
        CHECK(slots.release(*index, owner));
    }
    CHECK(slots.count(SlotState::free) == slots_count);
}

// Owner 1 is dead. Checks that it holds no slot, that ready slots are whole, and that the stream goes on.
void check_stream(unsigned char* memory, const std::string&) {
    Slots<> slots(memory, slots_count);
    slots.recover(1);
    const Recovered again = slots.recover(1);
    CHECK(again.freed == 0 && again.returned == 0);
    CHECK(slots.count(SlotState::free) + slots.count(SlotState::ready) == slots_count);
    drain(memory, 2);
    send<std::atomic>(memory, 3, 8);
    send<std::atomic>(memory, 3, 9);
    drain(memory, 2);
}

}  // namespace

TEST(kills, a_stream) {
    const auto script = [](unsigned char* memory) {
        Slots<Fallible> slots(memory, slots_count);
        send<Fallible>(memory, 1, 5);
        send<Fallible>(memory, 1, 6);
        CHECK(slots.release(*slots.take(1), 1));
        CHECK(slots.take(1));
    };
    CHECK(kill_at_each_point(stream_bytes, leave_zero, script, check_stream) > 40);
}

TEST(kills, a_stream_while_it_is_recovered) {
    const auto prepare = [](unsigned char* memory) {
        send<std::atomic>(memory, 1, 5);
        CHECK(Slots<>(memory, slots_count).take(1) && Slots<>(memory, slots_count).claim(1, 6));
    };
    const auto script = [](unsigned char* memory) {
        const Recovered recovered = Slots<Fallible>(memory, slots_count).recover(1);
        CHECK(recovered.freed == 1 && recovered.returned == 1);
    };
    CHECK(kill_at_each_point(stream_bytes, prepare, script, check_stream) > 6);
}

TEST(kills, a_stream_while_what_was_consumed_is_freed) {
    static constexpr std::array<std::uint64_t, 2> consumed{5, 6};
    const auto prepare = [](unsigned char* memory) {
        send<std::atomic>(memory, 1, 5);
        send<std::atomic>(memory, 1, 6);
        CHECK(Slots<>(memory, slots_count).take(1));
    };
    const auto script = [](unsigned char* memory) {
        CHECK(Slots<Fallible>(memory, slots_count).release_consumed(1, consumed) == 2);
    };
    const auto check = [](unsigned char* memory, const std::string& point) {
        Slots<> slots(memory, slots_count);
        slots.recover(1);
        slots.release_consumed(2, consumed);
        CHECK(slots.count(SlotState::free) == slots_count);
        check_stream(memory, point);
    };
    CHECK(kill_at_each_point(stream_bytes, prepare, script, check) > 5);
}

TEST(kills, a_sleeper) {
    const auto script = [](unsigned char* memory) {
        Doorbells<Fallible> bells(memory);
        CHECK(!bells.wait(0, 0, 1ms, 0ns));
    };
    const auto check = [](unsigned char* memory, const std::string& point) {
        Doorbells<> bells(memory);
        CHECK(bells.sleepers(0) == 1 || point == "test.atomic.after");
        bells.recover(0);
        CHECK(!bells.ring(0));  // no process sleeps now
        CHECK(bells.wait(0, 0, 100ms, 0ns) && bells.sleepers(0) == 0);
    };
    CHECK(kill_at_each_point(Doorbells<>::required(1), leave_zero, script, check) > 6);
}

// A recovery rings all bells, because the dead process may have died before a ring.
TEST(kills, a_ringer) {
    const auto script = [](unsigned char* memory) { Doorbells<Fallible>(memory).ring(0); };
    const auto check = [](unsigned char* memory, const std::string&) {
        const pid_t sleeper = start([memory] {
            Doorbells<> bells(memory);
            while (bells.word(0) < 2) {
                bells.wait(0, bells.word(0), 100ms, 0ns);
            }
        });
        Doorbells<>(memory).ring(0);
        CHECK(ended_well(reap(sleeper)));
        CHECK(Doorbells<>(memory).word(0) == 2 && Doorbells<>(memory).sleepers(0) == 0);
    };
    CHECK(kill_at_each_point(Doorbells<>::required(1), leave_zero, script, check) == 3);
}

TEST(kills, counters) {
    constexpr std::int64_t most = 3;
    const auto script = [](unsigned char* memory) {
        Counters<Fallible> counters(memory, 3);
        for (std::int64_t i = 1; i <= most; ++i) {
            counters.add(0, 0, 1);
            counters.add(0, 1, 1);
            counters.set(0, 2, i);
        }
    };
    int kills = 0;
    const auto check = [&kills](unsigned char* memory, const std::string&) {
        ++kills;
        const Counters<> counters(memory, 3);
        CHECK(counters.get(0, 0) + counters.get(0, 1) + counters.get(0, 2) == kills);
        CHECK(counters.get(0, 0) >= counters.get(0, 1) && counters.get(0, 1) >= counters.get(0, 2));
    };
    CHECK(kill_at_each_point(Counters<>::required(1, 3), leave_zero, script, check) == 3 * most);
}
