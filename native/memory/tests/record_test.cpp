#include "penstock/memory/record.hpp"

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "check.hpp"

using penstock::memory::Record;
using penstock::test::Memory;

namespace {

constexpr std::size_t words = 40;
constexpr std::size_t nbytes = words * sizeof(std::uint64_t);

// Fills the buffer in place, as the learner does. Relaxed words stand for the learner's plain stores. Those may race with a
// copy that is then thrown away. The race is harmless, but ThreadSanitizer would report it.
void fill(Record<>& record, std::size_t index, std::uint64_t value) {
    for (std::size_t i = 0; i < words; ++i) {
        record.words(index)[i].store(value, std::memory_order_relaxed);
    }
    PENSTOCK_FAULT_POINT("test.filled");
}

void write(Record<>& record, std::int64_t number) {
    fill(record, record.begin(), static_cast<std::uint64_t>(number));
    CHECK(record.commit(number));
}

void check_current(const Record<>& record, std::int64_t number) {
    const auto current = record.current();
    CHECK(current && current->number == number);
    for (std::size_t i = 0; i < words; ++i) {
        CHECK(record.words(current->index)[i].load() == static_cast<std::uint64_t>(number));
    }
}

}  // namespace

TEST(record, a_commit_makes_the_filled_buffer_current) {
    const Memory memory(Record<>::required(nbytes));
    Record<> record(memory.get(), nbytes);
    CHECK(!record.current());
    CHECK(!record.commit(1));  // nothing was begun
    write(record, 10);
    check_current(record, 10);
    const std::size_t open = record.begin();
    CHECK(open != record.current()->index);
    fill(record, open, 11);
    check_current(record, 10);
    CHECK(record.begin() == open);  // begun anew
    CHECK(record.commit(11));
    check_current(record, 11);
    CHECK(!record.commit(12));
}

TEST(record, a_copy_knows_whether_it_was_overwritten) {
    const Memory memory(Record<>::required(nbytes));
    Record<> record(memory.get(), nbytes);
    const auto copy_while = [&](const auto& meanwhile) {
        return record.copy([&](std::size_t, const Record<>::Word*) { meanwhile(); });
    };
    CHECK(!copy_while([] {}));
    write(record, 1);
    CHECK(copy_while([] {}) == 1);
    CHECK(copy_while([&] { static_cast<void>(record.begin()); }) == 1);   // fills the other buffer
    CHECK(copy_while([&] { write(record, 2); }) == 1);
    CHECK(!copy_while([&] { write(record, 3); static_cast<void>(record.begin()); }));  // begins on the one being copied
    CHECK(record.recover());
    CHECK(copy_while([] {}) == 3);
}

TEST(record, copies_beside_a_writer_are_whole) {
    const Memory memory(Record<>::required(nbytes));
    std::atomic<bool> done{false};
    std::thread writer([&] {
        Record<> record(memory.get(), nbytes);
        for (std::int64_t number = 1; number <= 20000; ++number) {
            write(record, number);
            if (number % 16 == 0) {
                std::this_thread::yield();
            }
        }
        done.store(true);
    });
    const auto copy = [&] {
        Record<> record(memory.get(), nbytes);
        std::vector<std::uint64_t> words_read(words);
        std::int64_t last = 0;
        bool stop = false;
        while (!stop) {
            stop = done.load();
            const auto number = record.copy([&](std::size_t, const Record<>::Word* from) {
                penstock::memory::load_words<std::atomic>(words_read.data(), from, nbytes, std::memory_order_relaxed);
            });
            if (!number) {
                continue;
            }
            CHECK(*number >= last);
            last = *number;
            for (const std::uint64_t word : words_read) {
                CHECK(word == static_cast<std::uint64_t>(*number));
            }
        }
        CHECK(last == 20000);
    };
    std::thread first(copy);
    std::thread second(copy);
    writer.join();
    first.join();
    second.join();
}

TEST(record, a_death_at_each_point_leaves_the_last_commit_whole) {
    const auto script = [](unsigned char* memory) {
        Record<> record(memory, nbytes);
        write(record, 1);
        write(record, 2);
        write(record, 3);
    };
    const int points = penstock::test::die_at_each_point(
        Record<>::required(nbytes), script, [](unsigned char* memory, const std::string& point) {
            Record<> record(memory, nbytes);
            const auto before = record.current();
            if (before) {
                check_current(record, before->number);
            }
            CHECK(record.recover() == (point != "record.begin.before" && point != "record.commit.after"));
            for (std::int64_t number = 4; number < 7; ++number) {
                write(record, number);
                check_current(record, number);
                CHECK(!record.recover());
            }
        });
    CHECK(points == 15);
}
