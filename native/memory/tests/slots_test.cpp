#include "penstock/memory/slots.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"

using penstock::memory::Slots;
using penstock::memory::SlotState;
using penstock::memory::SlotWord;
using penstock::test::Memory;

TEST(slots, word_keeps_its_three_parts) {
    const SlotWord word{SlotState::reading, SlotWord::owners - 1, SlotWord::sequences - 1};
    CHECK(word.pack() == 0x3FFF'FFFF'FFFF'FFFFU);
    const SlotWord back = SlotWord::unpack(word.pack());
    CHECK(back.state == word.state && back.owner == word.owner && back.sequence == word.sequence);
    CHECK((SlotWord{SlotState::writing, 5, 3}.pack()) == 0x1000'0500'0000'0003U);
    CHECK((SlotWord{SlotState::free, 0, 0}.pack()) == 0);
}

TEST(slots, a_slot_goes_round) {
    const Memory memory(Slots<>::required(2));
    Slots<> slots(memory.get(), 2);
    CHECK(slots.count(SlotState::free) == 2);
    CHECK(!slots.take(9));
    const auto index = slots.claim(1, 40);
    CHECK(index && slots.count(SlotState::writing) == 1);
    CHECK(slots.push(*index, 1));
    CHECK(slots.count(SlotState::ready) == 1);
    CHECK(slots.take(2) == index);
    CHECK(slots.word(*index).sequence == 40 && slots.word(*index).owner == 2);
    CHECK(slots.release(*index, 2));
    CHECK(slots.count(SlotState::free) == 2);
}

TEST(slots, a_full_stream_gives_nothing) {
    const Memory memory(Slots<>::required(2));
    Slots<> slots(memory.get(), 2);
    CHECK(slots.claim(1, 0) && slots.claim(1, 1));
    CHECK(!slots.claim(1, 2));
}

TEST(slots, the_smallest_sequence_comes_first) {
    const Memory memory(Slots<>::required(3));
    Slots<> slots(memory.get(), 3);
    for (const std::uint64_t sequence : {12U, 10U, 11U}) {
        CHECK(slots.push(*slots.claim(1, sequence), 1));
    }
    for (const std::uint64_t sequence : {10U, 11U, 12U}) {
        CHECK(slots.word(*slots.take(2)).sequence == sequence);
    }
}

namespace {

Slots<>* scanned = nullptr;

void push_two_during_the_scan(const char* point) {
    if (std::string(point) == "slots.take.scan" && scanned != nullptr) {
        Slots<>& slots = *scanned;
        scanned = nullptr;
        CHECK(slots.release(0, 1));
        CHECK(slots.push(*slots.claim(1, 21), 1));  // into slot 0, which the scan has passed
        CHECK(slots.push(1, 1));                    // 22, which it is about to find
    }
}

}  // namespace

TEST(slots, a_scan_does_not_overtake_the_writer) {
    const Memory memory(Slots<>::required(2));
    Slots<> slots(memory.get(), 2);
    CHECK(slots.push(*slots.claim(1, 20), 1) && slots.take(1) == 0U);  // slot 0 is busy
    CHECK(slots.claim(1, 22) == 1U);
    scanned = &slots;
    penstock::memory::fault_hook = push_two_during_the_scan;
    const auto index = slots.take(2);
    penstock::memory::fault_hook = nullptr;
    CHECK(index && slots.word(*index).sequence == 21);
}

TEST(slots, only_the_owner_moves_a_slot) {
    const Memory memory(Slots<>::required(1));
    Slots<> slots(memory.get(), 1);
    CHECK(!slots.push(0, 1));
    CHECK(slots.claim(1, 0));
    CHECK(!slots.push(0, 2));
    CHECK(!slots.release(0, 1));
    CHECK(slots.push(0, 1));
    CHECK(!slots.push(0, 1));
    CHECK(slots.take(2));
    CHECK(!slots.release(0, 1));
    CHECK(slots.release(0, 2));
}

TEST(slots, a_fenced_owner_fails_visibly) {
    const Memory memory(Slots<>::required(1));
    Slots<> slots(memory.get(), 1);
    CHECK(slots.claim(1, 0));
    CHECK(slots.recover(1).freed == 1);
    CHECK(!slots.push(0, 1));
    CHECK(slots.claim(2, 1));
    CHECK(!slots.push(0, 1));
    CHECK(slots.push(0, 2));
}

TEST(slots, recover_takes_back_what_the_owner_held_and_nothing_else) {
    const Memory memory(Slots<>::required(6));
    Slots<> slots(memory.get(), 6);
    CHECK(slots.push(*slots.claim(1, 0), 1));
    CHECK(slots.push(*slots.claim(2, 1), 2));
    CHECK(slots.push(*slots.claim(1, 2), 1));
    CHECK(slots.take(1) && slots.take(9));                    // 1 reads sequence 0, 9 reads sequence 1
    CHECK(slots.claim(1, 3) && slots.claim(2, 4));            // both write; sequence 2 stays ready
    const auto recovered = slots.recover(1);
    CHECK(recovered.freed == 1 && recovered.returned == 1);
    CHECK(slots.count(SlotState::ready) == 2);                // sequence 0 again, and 2 as before
    CHECK(slots.count(SlotState::writing) == 1 && slots.count(SlotState::reading) == 1);
    const auto again = slots.recover(1);
    CHECK(again.freed == 0 && again.returned == 0);
    CHECK(slots.word(*slots.take(9)).sequence == 0);
}

TEST(slots, what_a_commit_names_is_freed_and_the_rest_read_again) {
    const Memory memory(Slots<>::required(4));
    Slots<> slots(memory.get(), 4);
    for (std::uint64_t sequence = 0; sequence < 4; ++sequence) {
        CHECK(slots.push(*slots.claim(1, sequence), 1));
    }
    CHECK(slots.take(2) && slots.take(2) && slots.take(2));
    CHECK(slots.recover(2).returned == 3);                    // learner 2 died after it committed 0 and 1
    CHECK(slots.take(3));                                     // its successor already reads 0
    const std::array<std::uint64_t, 3> consumed{0, 1, 77};
    CHECK(slots.release_consumed(3, consumed) == 2);
    CHECK(slots.release_consumed(3, consumed) == 0);
    CHECK(slots.word(*slots.take(3)).sequence == 2);
    CHECK(slots.release_consumed(4, std::array<std::uint64_t, 1>{2}) == 0);  // not 4's to free
}

namespace {

constexpr std::size_t words = 16;
using Payload = std::array<std::uint64_t, words>;

void fill(Payload& payload, std::uint64_t sequence) {
    for (std::size_t i = 0; i < words; ++i) {
        payload[i] = sequence * 1000 + i;
    }
}

void check_filled(const Payload& payload, std::uint64_t sequence) {
    for (std::size_t i = 0; i < words; ++i) {
        CHECK(payload[i] == sequence * 1000 + i);
    }
}

constexpr std::uint64_t writers = 3;
constexpr std::uint64_t readers = 2;
constexpr std::uint64_t rounds = 2000;  // sequences of each writer

}  // namespace

TEST(slots, threads_lose_nothing_and_keep_each_writers_order) {
    const Memory memory(Slots<>::required(4));
    std::vector<Payload> payloads(4);  // plain memory: ThreadSanitizer checks that the word guards it
    std::vector<std::atomic<int>> seen(rounds * writers);
    std::atomic<std::uint64_t> left{rounds * writers};
    const auto write = [&](std::uint64_t writer) {
        Slots<> slots(memory.get(), 4);
        for (std::uint64_t round = 0; round < rounds;) {
            const std::uint64_t sequence = round * writers + writer;
            if (const auto index = slots.claim(writer, sequence)) {
                fill(payloads[*index], sequence);
                CHECK(slots.push(*index, writer));
                ++round;
            } else {
                std::this_thread::yield();
            }
        }
    };
    const auto read = [&](std::uint64_t reader) {
        Slots<> slots(memory.get(), 4);
        std::array<std::uint64_t, writers> next{};
        while (left.load() > 0) {
            const auto index = slots.take(reader);
            if (!index) {
                std::this_thread::yield();
                continue;
            }
            const std::uint64_t sequence = slots.word(*index).sequence;
            check_filled(payloads[*index], sequence);
            CHECK(sequence / writers + 1 > next[sequence % writers]);
            next[sequence % writers] = sequence / writers + 1;
            ++seen[sequence];
            CHECK(slots.release(*index, reader));
            --left;
        }
    };
    std::vector<std::thread> threads;
    for (std::uint64_t writer = 0; writer < writers; ++writer) {
        threads.emplace_back(write, writer);
    }
    for (std::uint64_t reader = 0; reader < readers; ++reader) {
        threads.emplace_back(read, writers + reader);
    }
    for (auto& thread : threads) {
        thread.join();
    }
    for (const auto& times : seen) {
        CHECK(times.load() == 1);
    }
    CHECK(Slots<>(memory.get(), 4).count(SlotState::free) == 4);
}

namespace {

thread_local std::mt19937 chance;

void die_sometimes(const char*) {
    if (chance() % 16 == 0) {
        throw penstock::test::Died{};
    }
}

}  // namespace

TEST(slots, threads_that_die_anywhere_lose_nothing) {
    const Memory memory(Slots<>::required(4));
    std::vector<Payload> payloads(4);
    std::vector<std::atomic<int>> pushed(rounds * writers);
    std::vector<std::atomic<int>> seen(rounds * writers);
    std::atomic<std::uint64_t> owners{1};
    std::atomic<std::uint64_t> writing{writers};
    std::atomic<std::uint64_t> deaths{0};
    // Each life goes on until it ends in a transition. Then it is recovered, and its successor goes on.
    const auto live = [&](std::uint64_t seed, const auto& body) {
        chance.seed(static_cast<std::mt19937::result_type>(seed));
        for (;;) {
            const std::uint64_t owner = owners++;
            try {
                penstock::memory::fault_hook = die_sometimes;
                body(owner);
                penstock::memory::fault_hook = nullptr;
                return;
            } catch (const penstock::test::Died&) {
                penstock::memory::fault_hook = nullptr;
                ++deaths;
                Slots<>(memory.get(), 4).recover(owner);
            }
        }
    };
    const auto write = [&](std::uint64_t writer) {
        std::uint64_t round = 0;
        live(writer, [&](std::uint64_t owner) {
            Slots<> slots(memory.get(), 4);
            while (round < rounds) {
                const std::uint64_t sequence = round * writers + writer;
                const auto index = slots.claim(owner, sequence);
                if (!index) {
                    std::this_thread::yield();
                    continue;
                }
                fill(payloads[*index], sequence);
                ++round;  // a rollout whose writer dies in push() is not written again here
                CHECK(slots.push(*index, owner));
                ++pushed[sequence];
            }
        });
        --writing;
    };
    const auto read = [&](std::uint64_t seed) {
        live(seed, [&](std::uint64_t owner) {
            Slots<> slots(memory.get(), 4);
            for (;;) {
                const bool last = writing.load() == 0;
                const auto index = slots.take(owner);
                if (!index) {
                    if (last && slots.count(SlotState::free) == 4) {
                        return;
                    }
                    std::this_thread::yield();
                    continue;
                }
                const std::uint64_t sequence = slots.word(*index).sequence;
                check_filled(payloads[*index], sequence);
                ++seen[sequence];
                CHECK(slots.release(*index, owner));
            }
        });
    };
    std::vector<std::thread> threads;
    for (std::uint64_t writer = 0; writer < writers; ++writer) {
        threads.emplace_back(write, writer);
    }
    for (std::uint64_t reader = 0; reader < readers; ++reader) {
        threads.emplace_back(read, writers + reader);
    }
    for (auto& thread : threads) {
        thread.join();
    }
    CHECK(deaths.load() > 100);
    for (std::size_t sequence = 0; sequence < seen.size(); ++sequence) {
        CHECK(pushed[sequence].load() == 0 || seen[sequence].load() > 0);
    }
    CHECK(Slots<>(memory.get(), 4).count(SlotState::free) == 4);
}

TEST(slots, a_death_at_each_point_leaves_a_slot_free_or_ready) {
    const auto script = [](unsigned char* memory) {
        Slots<> slots(memory, 1);
        CHECK(slots.push(*slots.claim(1, 8), 1));
        CHECK(slots.release(*slots.take(1), 1));
        CHECK(slots.push(*slots.claim(1, 9), 1));
        CHECK(slots.recover(1).freed == 0);
        CHECK(slots.release_consumed(1, std::array<std::uint64_t, 1>{9}) == 1);
    };
    const int points = penstock::test::die_at_each_point(Slots<>::required(1), script, [](unsigned char* memory, const std::string&) {
        Slots<> slots(memory, 1);
        slots.recover(1);
        CHECK(slots.count(SlotState::free) + slots.count(SlotState::ready) == 1);
        if (slots.count(SlotState::ready) == 1) {
            CHECK(slots.release(*slots.take(2), 2));
        }
        CHECK(slots.push(*slots.claim(2, 10), 2));
    });
    CHECK(points == 16);
}
