#include "penstock/memory/action_log.hpp"

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "check.hpp"

using penstock::memory::ActionLog;
using penstock::memory::hash_bytes;
using penstock::memory::hash_start;
using penstock::memory::Position;
using penstock::test::Memory;

namespace {

constexpr std::size_t capacity = 8;
constexpr std::size_t action_bytes = 12;  // a word and a half

struct Action {
    std::uint32_t numbers[3];
};
static_assert(sizeof(Action) == action_bytes);

void append(ActionLog<>& log, std::size_t lane, std::uint32_t number) {
    const Action action{{number, number + 1, number + 2}};
    log.append(lane, &action);
    log.observe(lane, &number, sizeof number);
}

bool holds(const ActionLog<>& log, std::size_t lane, const Position& at, std::uint32_t first) {
    std::vector<Action> actions(static_cast<std::size_t>(at.steps));
    if (!log.content(lane, at, actions.data())) {
        return false;
    }
    for (std::uint32_t i = 0; i < actions.size(); ++i) {
        const std::uint32_t number = first + i;
        CHECK(actions[i].numbers[0] == number && actions[i].numbers[1] == number + 1 && actions[i].numbers[2] == number + 2);
    }
    return true;
}

}  // namespace

TEST(action_log, an_episode_can_be_read_back) {
    const Memory memory(ActionLog<>::required(2, action_bytes, capacity));
    ActionLog<> log(memory.get(), action_bytes, capacity);
    log.begin_episode(1, 3);
    for (std::uint32_t number = 0; number < 5; ++number) {
        append(log, 1, number);
    }
    const Position at = log.position(1);
    CHECK(at.episode == 3 && at.first_step == 0 && at.steps == 5);
    CHECK(holds(log, 1, at, 0));
    log.begin_episode(1, 4);
    CHECK(log.position(1).first_step == 5 && log.position(1).steps == 0);
    append(log, 1, 5);
    append(log, 1, 6);
    CHECK(holds(log, 1, log.position(1), 5));
    CHECK(holds(log, 1, at, 0));            // still there: 7 actions in a ring of 8
    CHECK(holds(log, 1, {3, 0, 2, 0}, 0));  // up to an earlier position
    append(log, 1, 7);
    CHECK(holds(log, 1, at, 0));
    append(log, 1, 8);
    CHECK(!holds(log, 1, at, 0));           // the ring has been overwritten
    CHECK(log.position(0).steps == 0);
}

TEST(action_log, an_episode_longer_than_the_ring_is_not_there) {
    const Memory memory(ActionLog<>::required(1, action_bytes, capacity));
    ActionLog<> log(memory.get(), action_bytes, capacity);
    log.begin_episode(0, 0);
    for (std::uint32_t number = 0; number < capacity; ++number) {
        append(log, 0, number);
    }
    CHECK(holds(log, 0, log.position(0), 0));
    append(log, 0, 8);
    CHECK(log.position(0).steps == 9 && !holds(log, 0, log.position(0), 0));
    CHECK(!holds(log, 0, {0, 9, 3, 0}, 9));  // not written yet
}

TEST(action_log, a_new_writer_goes_on_from_an_earlier_position) {
    const Memory memory(ActionLog<>::required(1, action_bytes, capacity));
    ActionLog<> log(memory.get(), action_bytes, capacity);
    log.begin_episode(0, 0);
    append(log, 0, 0);
    append(log, 0, 1);
    const Position boundary = log.position(0);
    for (std::uint32_t number = 2; number < 8; ++number) {
        append(log, 0, number + 90);
    }
    log.begin_episode(0, 1);
    append(log, 0, 98);  // overwrites action 0
    log.rewind(0, boundary);
    CHECK(log.position(0).hash == boundary.hash && log.position(0).steps == 2 && log.position(0).episode == 0);
    append(log, 0, 2);
    CHECK(!holds(log, 0, log.position(0), 0));  // the mark of overwritten actions is never lowered
}

TEST(action_log, an_action_that_is_being_written_is_not_there_yet) {
    const Memory memory(ActionLog<>::required(1, action_bytes, capacity));
    ActionLog<> log(memory.get(), action_bytes, capacity);
    log.begin_episode(0, 0);
    append(log, 0, 0);
    append(log, 0, 1);
    const Position early{0, 0, 3, 0};
    penstock::test::points_left = 0;  // action_log.append.begun
    penstock::memory::fault_hook = penstock::test::die_at_last_point;
    try {
        append(log, 0, 2);
        CHECK(false);
    } catch (const penstock::test::Died&) {
    }
    penstock::memory::fault_hook = nullptr;
    CHECK(!holds(log, 0, early, 0));
    log.rewind(0, {0, 0, 0, 0});  // a new writer goes back; actions that were whole stay readable
    CHECK(holds(log, 0, {0, 0, 2, 0}, 0) && !holds(log, 0, early, 0));
}

TEST(action_log, the_hash_follows_the_observations) {
    const Memory memory(ActionLog<>::required(2, action_bytes, capacity));
    ActionLog<> log(memory.get(), action_bytes, capacity);
    for (const std::size_t lane : {0U, 1U}) {
        log.begin_episode(lane, 0);
        append(log, lane, 1);
        append(log, lane, 2);
    }
    CHECK(log.position(0).hash == log.position(1).hash);
    append(log, 0, 3);
    append(log, 1, 4);
    CHECK(log.position(0).hash != log.position(1).hash);
    log.begin_episode(0, 1);
    append(log, 0, 1);
    append(log, 0, 2);
    append(log, 0, 4);
    CHECK(log.position(0).hash == log.position(1).hash);
}

// These numbers are written into checkpoints, so they must never change.
TEST(action_log, the_hash_is_the_same_everywhere) {
    unsigned char bytes[200];
    for (std::size_t i = 0; i < sizeof bytes; ++i) {
        bytes[i] = static_cast<unsigned char>(i);
    }
    CHECK(hash_bytes(hash_start, bytes, 0) == hash_start);
    CHECK(hash_bytes(hash_start, bytes, 8) == 0x6980DAA4E676D8EBU);
    CHECK(hash_bytes(hash_start, bytes, 11) == 0xD4A9536A722C78F5U);
    CHECK(hash_bytes(hash_start, bytes, 200) == 0x5DE5E449A0969AA6U);
}

TEST(action_log, copies_beside_a_writer_are_whole) {
    constexpr std::size_t ring = 64;
    const Memory memory(ActionLog<>::required(1, action_bytes, ring));
    std::atomic<std::int64_t> written{0};
    constexpr std::int64_t last = 50000;
    std::thread writer([&] {
        ActionLog<> log(memory.get(), action_bytes, ring);
        log.begin_episode(0, 0);
        for (std::int64_t number = 0; number < last; ++number) {
            append(log, 0, static_cast<std::uint32_t>(number));
            written.store(number + 1);
            if (number % 32 == 0) {
                std::this_thread::yield();
            }
        }
    });
    const ActionLog<> log(memory.get(), action_bytes, ring);
    std::int64_t end = 0;
    int whole = 0;
    while (end < last) {
        end = written.load();
        const std::int64_t steps = end < 40 ? end : 40;
        whole += holds(log, 0, {0, end - steps, steps, 0}, static_cast<std::uint32_t>(end - steps)) ? 1 : 0;
    }
    writer.join();
    CHECK(whole > 0);
}

TEST(action_log, a_death_at_each_point_leaves_the_boundary_restorable) {
    const auto script = [](unsigned char* memory) {
        ActionLog<> log(memory, action_bytes, capacity);
        log.begin_episode(0, 0);
        append(log, 0, 0);
        append(log, 0, 1);
        log.rewind(0, log.position(0));
        append(log, 0, 2);
    };
    const int points = penstock::test::die_at_each_point(
        ActionLog<>::required(1, action_bytes, capacity), script, [](unsigned char* memory, const std::string&) {
            ActionLog<> log(memory, action_bytes, capacity);
            const Position at = log.position(0);
            CHECK(at.steps >= 0 && at.steps <= 3 && holds(log, 0, at, 0));
            const Position boundary{0, 0, at.steps < 1 ? at.steps : 1, 0};
            log.rewind(0, boundary);
            append(log, 0, static_cast<std::uint32_t>(boundary.steps));
            CHECK(holds(log, 0, log.position(0), 0));
        });
    CHECK(points == 13);
}
