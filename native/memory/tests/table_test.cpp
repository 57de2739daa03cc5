#include "penstock/memory/table.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "check.hpp"

using penstock::memory::Table;
using penstock::test::Memory;

namespace {

constexpr std::size_t slots = 4;
constexpr std::size_t words = 12;
using Word = std::atomic<std::uint64_t>;

Word* payload(unsigned char* memory, std::size_t writers, std::size_t writer, std::uint64_t sequence) {
    auto* first = reinterpret_cast<Word*>(memory + Table<>::required(writers));
    return first + (writer * slots + sequence % slots) * words;
}

constexpr std::size_t bytes_for(std::size_t writers) {
    return Table<>::required(writers) + writers * slots * words * sizeof(Word);
}

// Relaxed words stand for plain stores. Those may race with a copy that is then thrown away. The race is harmless, but
// ThreadSanitizer would report it.
void fill(Word* to, std::size_t writer, std::uint64_t sequence) {
    for (std::size_t i = 0; i < words; ++i) {
        to[i].store(1000 * sequence + writer, std::memory_order_relaxed);
    }
}

}  // namespace

TEST(table, slots_are_written_in_order) {
    const Memory memory(Table<>::required(2));
    Table<> table(memory.get(), 2, slots);
    CHECK(table.written(0) == 0 && table.claimed(0) == 0 && table.oldest(0) == 0);
    CHECK(!table.push(0, 0));   // not claimed
    CHECK(!table.claim(0, 1));  // not the next one
    CHECK(table.claim(0, 0) && table.claim(0, 0));
    CHECK(table.written(0) == 0 && table.claimed(0) == 1);
    CHECK(!table.push(0, 1));
    CHECK(table.push(0, 0) && !table.push(0, 0) && !table.claim(0, 0));
    CHECK(table.written(0) == 1 && table.written(1) == 0 && table.claimed(1) == 0);
}

TEST(table, a_claim_takes_the_oldest_slot) {
    const Memory memory(Table<>::required(1));
    Table<> table(memory.get(), 1, slots);
    for (std::uint64_t sequence = 0; sequence < slots; ++sequence) {
        CHECK(table.claim(0, sequence) && table.oldest(0) == 0 && table.push(0, sequence));
    }
    CHECK(table.oldest(0) == 0);
    CHECK(table.claim(0, slots) && table.oldest(0) == 1);
    CHECK(table.push(0, slots) && table.oldest(0) == 1);
    table.begin(0, 100, 96);
    CHECK(table.written(0) == 100 && table.oldest(0) == 96 && table.claim(0, 100) && table.oldest(0) == 97);
}

TEST(table, what_was_not_restored_cannot_be_read) {
    const Memory memory(Table<>::required(1));
    Table<> table(memory.get(), 1, slots);
    table.begin(0, 100, 98);
    CHECK(table.first(0) == 98 && table.written(0) == 100 && table.claimed(0) == 100);
    CHECK(table.claim(0, 100) && table.push(0, 100) && table.claim(0, 101) && table.first(0) == 98);
    // From here on the size of the ring decides: 103 - 4.
    CHECK(table.push(0, 101) && table.claim(0, 102) && table.first(0) == 99);
}

// Four writers and four readers. Each slot that a reader takes for whole is whole.
TEST(table, copies_beside_writers_are_whole) {
    constexpr std::size_t writers = 4;
    constexpr std::uint64_t most = 3000;
    const Memory memory(bytes_for(writers));
    const auto write = [&](std::size_t writer) {
        Table<> table(memory.get(), writers, slots);
        for (std::uint64_t sequence = 0; sequence < most; ++sequence) {
            CHECK(table.claim(writer, sequence));
            fill(payload(memory.get(), writers, writer, sequence), writer, sequence);
            CHECK(table.push(writer, sequence));
            if (sequence % 8 == 0) {
                std::this_thread::yield();
            }
        }
    };
    std::atomic<std::uint64_t> whole{0};
    const auto read = [&](unsigned seed) {
        Table<> table(memory.get(), writers, slots);
        std::mt19937 chance(seed);
        std::array<std::uint64_t, words> copied{};
        for (std::uint64_t least = 0; least < most;) {
            least = most;
            for (std::size_t writer = 0; writer < writers; ++writer) {
                const std::uint64_t written = table.written(writer);
                least = written < least ? written : least;
                const std::uint64_t age = 1 + chance() % slots;
                if (written < age) {
                    continue;
                }
                const std::uint64_t sequence = written - age;
                const Word* from = payload(memory.get(), writers, writer, sequence);
                penstock::memory::load_words<std::atomic>(copied.data(), from, sizeof copied, std::memory_order_relaxed);
                if (sequence < table.oldest(writer)) {
                    continue;
                }
                for (const std::uint64_t word : copied) {
                    CHECK(word == 1000 * sequence + writer);
                }
                whole.fetch_add(1, std::memory_order_relaxed);
            }
        }
    };
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 4; ++i) {
        threads.emplace_back(read, i);
        threads.emplace_back(write, i);
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    CHECK(whole.load() > 0);
}

TEST(table, a_death_at_each_point_loses_at_most_what_was_being_written) {
    const auto script = [](unsigned char* memory) {
        Table<> table(memory, 1, slots);
        table.begin(0, 0, 0);
        for (std::uint64_t sequence = 0; sequence < 6; ++sequence) {
            CHECK(table.claim(0, sequence));
            fill(payload(memory, 1, 0, sequence), 0, sequence);
            CHECK(table.push(0, sequence));
        }
    };
    const int points = penstock::test::die_at_each_point(bytes_for(1), script, [](unsigned char* memory, const std::string&) {
        Table<> table(memory, 1, slots);
        for (int i = 0; i < 3; ++i) {
            const std::uint64_t next = table.written(0);
            for (std::uint64_t sequence = table.oldest(0); sequence < next; ++sequence) {
                CHECK(payload(memory, 1, 0, sequence)->load() == 1000 * sequence);
            }
            CHECK(table.claim(0, next));
            fill(payload(memory, 1, 0, next), 0, next);
            CHECK(table.push(0, next));
        }
    });
    CHECK(points == 26);
}
