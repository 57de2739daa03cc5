// A table whose writer is killed at each place in turn. The parent reaps it, checks all readable slots, and goes on.
#include <cstdint>
#include <string>

#include "check.hpp"
#include "kills.hpp"
#include "penstock/memory/table.hpp"

using namespace penstock::memory;
using namespace penstock::test;

namespace {

constexpr std::size_t slots = 3;
constexpr std::size_t nbytes = Table<>::required(1) + slots * few * sizeof(std::uint64_t);

std::uint64_t* payload(unsigned char* memory, std::uint64_t sequence) {
    return reinterpret_cast<std::uint64_t*>(memory + Table<>::required(1)) + sequence % slots * few;
}

template <template <class> class Atomic>
void write(unsigned char* memory, std::uint64_t sequence) {
    Table<Atomic> table(memory, 1, slots);
    CHECK(table.claim(0, sequence));
    write_payload(payload(memory, sequence), 100 * sequence);
    CHECK(table.push(0, sequence));
}

// Checks that all readable slots are whole. Returns the next sequence.
std::uint64_t check_whole(unsigned char* memory) {
    Table<> table(memory, 1, slots);
    const std::uint64_t written = table.written(0);
    for (std::uint64_t sequence = table.oldest(0); sequence < written; ++sequence) {
        CHECK(holds(payload(memory, sequence), 100 * sequence));
    }
    return written;
}

}  // namespace

TEST(kills, a_table) {
    const auto script = [](unsigned char* memory) {
        Table<Fallible>(memory, 1, slots).begin(0, 0, 0);
        for (std::uint64_t sequence = 0; sequence < 5; ++sequence) {
            write<Fallible>(memory, sequence);
        }
    };
    const auto check = [](unsigned char* memory, const std::string&) {
        for (int i = 0; i < 4; ++i) {
            write<std::atomic>(memory, check_whole(memory));
        }
        CHECK(check_whole(memory) >= 4);
    };
    CHECK(kill_at_each_point(nbytes, leave_zero, script, check) > 60);
}

// A dead reader leaves nothing behind that disturbs the writer.
TEST(kills, a_reader_of_a_table) {
    const auto prepare = [](unsigned char* memory) {
        for (std::uint64_t sequence = 0; sequence < 5; ++sequence) {
            write<std::atomic>(memory, sequence);
        }
    };
    const auto script = [](unsigned char* memory) {
        Table<Fallible> table(memory, 1, slots);
        CHECK(table.written(0) == 5 && table.claimed(0) == 5 && table.oldest(0) == 2);
    };
    const auto check = [](unsigned char* memory, const std::string&) {
        CHECK(check_whole(memory) == 5);
        write<std::atomic>(memory, 5);
        CHECK(check_whole(memory) == 6);
    };
    CHECK(kill_at_each_point(nbytes, prepare, script, check) == 3);
}
