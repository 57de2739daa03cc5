// Processes that share memory and are killed at random moments. Payloads carry checksums.
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <random>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "check.hpp"
#include "penstock/memory/board.hpp"
#include "penstock/memory/counters.hpp"
#include "penstock/memory/doorbell.hpp"
#include "penstock/memory/lifeline.hpp"
#include "penstock/memory/record.hpp"
#include "penstock/memory/slots.hpp"
#include "processes.hpp"

using namespace penstock::memory;
using namespace penstock::test;
using namespace std::chrono_literals;

// Two writers and a reader are killed at random moments. The parent recovers them and starts them again under new owners.
// Each pushed sequence is read at least once, and whole. At the end all slots are free.
TEST(processes, a_stream_survives_random_kills) {
    constexpr std::size_t slots_count = 4;
    constexpr std::size_t sequences = 4096;
    struct Tallies {
        std::atomic<std::uint64_t> round[2];       // next rollout of each writer
        std::atomic<std::uint8_t> pushed[sequences];
        std::atomic<std::uint8_t> read[sequences];
        std::atomic<bool> stop;
    };
    const std::size_t tally_offset = Slots<>::required(slots_count) + slots_count * sizeof(Payload);
    const Shared shared(tally_offset + sizeof(Tallies));
    auto* payloads = reinterpret_cast<Payload*>(shared.get() + Slots<>::required(slots_count));
    auto& tallies = *reinterpret_cast<Tallies*>(shared.get() + tally_offset);
    Slots<> slots(shared.get(), slots_count);

    const auto write = [&](std::uint64_t writer, std::uint64_t owner) {
        while (!tallies.stop.load()) {
            const std::uint64_t sequence = tallies.round[writer].load() * 2 + writer;
            const auto index = sequence < sequences ? slots.claim(owner, sequence) : std::nullopt;
            if (!index) {
                std::this_thread::sleep_for(100us);
                continue;
            }
            fill(payloads[*index], sequence);
            CHECK(slots.push(*index, owner));
            tallies.pushed[sequence].store(1);
            tallies.round[writer].fetch_add(1);
        }
    };
    const auto check_and_tally = [&](std::size_t index) {
        const std::uint64_t sequence = slots.word(index).sequence;
        Payload expected;
        fill(expected, sequence);
        CHECK(payloads[index].checksum == expected.checksum && checksum(payloads[index]) == expected.checksum);
        tallies.read[sequence].store(1);
    };
    const auto read = [&](std::uint64_t owner) {
        while (!tallies.stop.load() || slots.count(SlotState::ready) > 0) {
            const auto index = slots.take(owner);
            if (!index) {
                std::this_thread::sleep_for(100us);
                continue;
            }
            check_and_tally(*index);
            CHECK(slots.release(*index, owner));
        }
    };

    struct Child {
        pid_t process;
        std::uint64_t owner;
    };
    std::uint64_t owners = 1;
    const auto begin = [&](std::size_t role) {
        const std::uint64_t owner = owners++;
        return Child{start([&] { role == 2 ? read(owner) : write(role, owner); }), owner};
    };
    std::vector<Child> children{begin(0), begin(1), begin(2)};
    std::mt19937 chance(7);
    for (int kills = 0; kills < 150; ++kills) {
        std::this_thread::sleep_for(std::chrono::microseconds(chance() % 4000));
        const std::size_t role = chance() % 3;
        kill(children[role].process, SIGKILL);
        CHECK(was_killed(reap(children[role].process)));  // fenced; its slots are taken back only after this
        slots.recover(children[role].owner);
        children[role] = begin(role);
    }
    tallies.stop.store(true);
    for (const Child& child : children) {
        CHECK(ended_well(reap(child.process)));
    }
    while (const auto index = slots.take(owners)) {  // slots that were pushed after the reader's last look
        check_and_tally(*index);
        CHECK(slots.release(*index, owners));
    }
    std::size_t pushed = 0;
    for (std::size_t sequence = 0; sequence < sequences; ++sequence) {
        CHECK(tallies.pushed[sequence].load() == 0 || tallies.read[sequence].load() == 1);
        pushed += tallies.pushed[sequence].load();
    }
    CHECK(pushed > 100);
    CHECK(slots.count(SlotState::free) == slots_count);
}

TEST(processes, a_board_survives_random_kills) {
    constexpr std::size_t buffers = 2;
    const Shared shared(Board<>::required(words + 1, buffers));
    const auto write = [&] {
        Board<> board(shared.get(), words + 1, buffers);
        for (std::int64_t version = board.version().version + 1;; ++version) {
            Payload payload;
            fill(payload, static_cast<std::uint64_t>(version));
            board.begin();
            board.store(0, &payload, sizeof payload);
            board.finish(version);
        }
    };
    Board<> board(shared.get(), words + 1, buffers);
    std::mt19937 chance(3);
    std::int64_t last = -1;
    for (int kills = 0; kills < 60; ++kills) {
        const pid_t writer = start(write);
        const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(500 + chance() % 4000);
        do {
            Payload payload{};
            const auto [version, whole] = board.read([&](Board<>::Source& from) {
                from.load(0, &payload, sizeof payload);
            });
            CHECK(whole && version >= last);
            CHECK(version == -1 || payload.checksum == checksum(payload));
            last = version;
        } while (std::chrono::steady_clock::now() < end);
        kill(writer, SIGKILL);
        CHECK(was_killed(reap(writer)));
        board.recover();
    }
    CHECK(last > 100);
}

TEST(processes, a_sleeper_is_woken_by_another_process) {
    const Shared shared(Doorbells<>::required(2) + Counters<>::required(1, 1));
    constexpr std::int64_t rounds = 2000;
    const auto play = [&](std::size_t own) {
        Doorbells<> bells(shared.get());
        Counters<> ball(shared.get() + Doorbells<>::required(2), 1);
        std::uint32_t seen = 0;
        for (auto round = static_cast<std::int64_t>(own); round < rounds; round += 2) {
            while (round != 0 && bells.word(own) == seen) {
                bells.wait(own, seen, 100ms, 0ns);
            }
            seen = bells.word(own);
            CHECK(ball.get(0, 0) == round);
            ball.add(0, 0, 1);
            bells.ring(1 - own);
        }
    };
    const pid_t first = start([&] { play(0); });
    const pid_t second = start([&] { play(1); });
    CHECK(ended_well(reap(first)) && ended_well(reap(second)));
}

TEST(processes, a_cut_lifeline_ends_the_process) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    const pid_t child = start([&] {
        close(ends[1]);
        std::thread([&] { watch_lifeline(ends[0], 113); }).join();  // the thread that started the lifeline has ended
        close(ends[0]);
        for (;;) {
            pause();
        }
    });
    close(ends[0]);
    CHECK(write(ends[1], "still here", 10) == 10);
    CHECK(waitpid(child, nullptr, WNOHANG) == 0);
    close(ends[1]);
    const int status = reap(child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 113);
}
