// No structure allocates once it stands: its memory is all that it uses. Each step of a run goes through these calls.
#include <array>
#include <cstddef>
#include <cstdint>
#include <new>

#include "check.hpp"
#include "counted_new.hpp"
#include "penstock/memory/action_log.hpp"
#include "penstock/memory/board.hpp"
#include "penstock/memory/slots.hpp"
#include "penstock/memory/table.hpp"

using penstock::memory::ActionLog;
using penstock::memory::Board;
using penstock::memory::Slots;
using penstock::memory::SlotState;
using penstock::memory::Table;
using penstock::test::allocations;
using penstock::test::Memory;

namespace {

constexpr std::uint64_t rounds = 1000;

// Allocations of a thousand rounds.
template <class Round>
std::size_t allocated(Round round) {
    const std::size_t before = allocations;
    for (std::uint64_t number = 0; number < rounds; ++number) {
        round(number);
    }
    return allocations - before;
}

}  // namespace

TEST(allocation, each_allocation_is_counted) {
    const std::size_t found = allocated([](std::uint64_t) {
        ::operator delete(::operator new(8));
        ::operator delete[](::operator new[](8));
        ::operator delete(::operator new(8, std::align_val_t{64}), std::align_val_t{64});
    });
    CHECK(found == 3 * rounds);
}

TEST(allocation, slots_go_round_without_one) {
    const Memory memory(Slots<>::required(4));
    Slots<> slots(memory.get(), 4);
    const std::size_t found = allocated([&](std::uint64_t number) {
        for (std::uint64_t owner = 1; owner < 4; ++owner) {
            CHECK(slots.push(*slots.claim(owner, 4 * number + owner), owner));
        }
        CHECK(slots.claim(5, 4 * number) && !slots.claim(5, 0));
        for (const std::uint64_t reader : {8U, 9U}) {
            CHECK(slots.release(*slots.take(reader), reader));
        }
        const auto held = slots.take(8);
        CHECK(held && slots.recover(8).returned == 1 && slots.recover(5).freed == 1);
        const std::array<std::uint64_t, 1> consumed{slots.word(*held).sequence};
        CHECK(slots.release_consumed(9, consumed) == 1 && slots.count(SlotState::free) == 4);
    });
    CHECK(found == 0);
}

TEST(allocation, a_table_is_filled_and_read_without_one) {
    const Memory memory(Table<>::required(1));
    Table<> table(memory.get(), 1, 4);
    const std::size_t found = allocated([&](std::uint64_t number) {
        CHECK(table.claim(0, number) && table.push(0, number));
        CHECK(table.written(0) == number + 1 && table.oldest(0) <= number);
    });
    CHECK(found == 0);
}

TEST(allocation, actions_are_logged_without_one) {
    const std::array<std::uint32_t, 3> action{1, 2, 3};
    const Memory memory(ActionLog<>::required(2, sizeof action, 8));
    ActionLog<> log(memory.get(), sizeof action, 8);
    const std::size_t found = allocated([&](std::uint64_t) {
        log.begin_episode(1, 3);
        log.append(1, action.data());
        log.observe(1, action.data(), sizeof action);
        CHECK(log.position(1).steps == 1);
    });
    CHECK(found == 0);
}

TEST(allocation, parameters_are_published_and_read_without_one) {
    std::array<std::uint64_t, 33> record{};
    const Memory memory(Board<>::required(record.size(), 3));
    Board<> board(memory.get(), record.size(), 3);
    const std::size_t found = allocated([&](std::uint64_t number) {
        const auto version = static_cast<std::int64_t>(number);
        board.begin();
        board.store(0, record.data(), sizeof record);
        board.finish(version);
        CHECK(board.read([&](Board<>::Source& from) { from.load(0, record.data(), sizeof record); }) == version);
    });
    CHECK(found == 0);
}
