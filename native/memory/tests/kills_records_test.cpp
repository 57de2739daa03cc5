// Commit records, boards and action logs whose processes are killed at each place in turn. After each kill the parent
// reaps, recovers, checks the structure, and goes on.
#include <array>
#include <atomic>
#include <cstdint>
#include <set>
#include <string>

#include "check.hpp"
#include "kills.hpp"
#include "penstock/memory/action_log.hpp"
#include "penstock/memory/board.hpp"
#include "penstock/memory/record.hpp"

using namespace penstock::memory;
using namespace penstock::test;

namespace {

constexpr std::size_t record_bytes = few * sizeof(std::uint64_t);
constexpr std::size_t board_offset = Record<>::required(record_bytes);
constexpr std::size_t published_bytes = board_offset + Board<>::required(few, 2);

// Commits and publishes, as a learner does.
template <template <class> class Atomic>
void commit_and_publish(unsigned char* memory, std::int64_t number) {
    Record<Atomic> record(memory, record_bytes);
    Board<Atomic> board(memory + board_offset, few, 2);
    std::array<std::uint64_t, few> value;
    const std::uint64_t first = 100 * static_cast<std::uint64_t>(number);
    write_payload(reinterpret_cast<std::uint64_t*>(record.words(record.begin())), first);
    CHECK(record.commit(number));
    write_payload(value.data(), first);
    board.begin();
    board.store(0, value.data(), sizeof(std::uint64_t));
    board.store(1, value.data() + 1, sizeof value - sizeof(std::uint64_t));
    board.finish(number);
}

// Checks that the last commit and the last publication are whole, and that the publication is not the later one.
std::int64_t check_published(unsigned char* memory) {
    Record<> record(memory, record_bytes);
    const Board<> board(memory + board_offset, few, 2);
    const auto current = record.current();
    const std::int64_t number = current ? current->number : 0;
    const auto whole = [](const std::uint64_t* words, std::int64_t of) {
        return of == 0 || holds(words, 100 * static_cast<std::uint64_t>(of));
    };
    CHECK(!current || whole(reinterpret_cast<const std::uint64_t*>(record.words(current->index)), number));
    std::array<std::uint64_t, few> value{};
    const auto [version, intact] = board.read([&value](Board<>::Source& from) { from.load(0, value.data(), sizeof value); });
    CHECK(intact);
    CHECK(version == Board<>::nothing || (whole(value.data(), version) && version <= number && version >= number - 1));
    return number;
}

}  // namespace

TEST(kills, a_commit_and_a_publication) {
    const auto script = [](unsigned char* memory) {
        for (std::int64_t number = 1; number <= 3; ++number) {
            commit_and_publish<Fallible>(memory, number);
        }
    };
    const auto check = [](unsigned char* memory, const std::string& point) {
        static const std::set<std::string> in_publication{"board.begin.after", "board.store.after",
                                                          "board.finish.version", "board.finish.checksum",
                                                          "board.finish.stamp"};
        static const std::set<std::string> in_commit{"record.begin.after", "record.commit.before"};
        const bool cut_publication = Board<>(memory + board_offset, few, 2).recover();
        const bool cut_commit = Record<>(memory, record_bytes).recover();
        CHECK(cut_publication == in_publication.contains(point) || point.starts_with("test."));
        CHECK(cut_commit == in_commit.contains(point) || point.starts_with("test."));
        CHECK(!cut_commit || !cut_publication);
        CHECK(!Board<>(memory + board_offset, few, 2).recover());
        std::int64_t number = check_published(memory);
        for (const std::int64_t last = number + 3; number < last;) {
            commit_and_publish<std::atomic>(memory, ++number);
            CHECK(check_published(memory) == number);
        }
    };
    CHECK(kill_at_each_point(published_bytes, leave_zero, script, check) > 60);
}

// A dead reader leaves nothing behind that disturbs the writer.
TEST(kills, a_reader_of_record_and_board) {
    const auto prepare = [](unsigned char* memory) {
        commit_and_publish<std::atomic>(memory, 1);
        commit_and_publish<std::atomic>(memory, 2);
    };
    const auto script = [](unsigned char* memory) {
        std::array<std::uint64_t, few> value{};
        Record<Fallible> record(memory, record_bytes);
        CHECK(record.copy([&value](std::size_t, const Record<Fallible>::Word* from) {
            load_words<Fallible>(value.data(), from, sizeof value, std::memory_order_relaxed);
        }) == 2);
        const Board<Fallible> board(memory + board_offset, few, 2);
        CHECK(board.read([&value](Board<Fallible>::Source& from) { from.load(0, value.data(), sizeof value); }) == 2);
    };
    const auto check = [](unsigned char* memory, const std::string&) {
        CHECK(check_published(memory) == 2);
        commit_and_publish<std::atomic>(memory, 3);
        CHECK(check_published(memory) == 3);
    };
    CHECK(kill_at_each_point(published_bytes, prepare, script, check) > 12);
}

namespace {

constexpr std::size_t capacity = 4;
constexpr std::size_t action_bytes = 12;  // a word and a half
constexpr std::size_t note_offset = ActionLog<>::required(1, action_bytes, capacity);
using Action = std::array<std::uint32_t, 3>;

Position& note(unsigned char* memory) { return *reinterpret_cast<Position*>(memory + note_offset); }

template <template <class> class Atomic>
void append(unsigned char* memory, std::uint32_t number) {
    ActionLog<Atomic> log(memory, action_bytes, capacity);
    const Action action{number, number + 1, number + 2};
    log.append(0, action.data());
    log.observe(0, &number, sizeof number);
}

bool restores(unsigned char* memory, const Position& at) {
    std::array<Action, capacity> actions{};
    if (!ActionLog<>(memory, action_bytes, capacity).content(0, at, actions.data())) {
        return false;
    }
    for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(at.steps); ++i) {
        const std::uint32_t number = static_cast<std::uint32_t>(at.first_step) + i;
        CHECK((actions[i] == Action{number, number + 1, number + 2}));
    }
    return true;
}

}  // namespace

TEST(kills, an_action_log) {
    const auto script = [](unsigned char* memory) {
        ActionLog<Fallible> log(memory, action_bytes, capacity);
        log.begin_episode(0, 0);
        append<Fallible>(memory, 0);
        append<Fallible>(memory, 1);
        log.begin_episode(0, 1);
        append<Fallible>(memory, 2);
        note(memory) = log.position(0);  // as in a commit record
        append<Fallible>(memory, 3);
        log.rewind(0, note(memory));
        append<Fallible>(memory, 3);
        log.begin_episode(0, 2);
        append<Fallible>(memory, 4);
    };
    const auto check = [](unsigned char* memory, const std::string&) {
        ActionLog<> log(memory, action_bytes, capacity);
        const Position boundary = note(memory);
        CHECK(restores(memory, boundary));
        log.rewind(0, boundary);
        const Position at = log.position(0);
        CHECK(at.episode == boundary.episode && at.first_step == boundary.first_step && at.steps == boundary.steps &&
              at.hash == boundary.hash);
        append<std::atomic>(memory, static_cast<std::uint32_t>(at.first_step + at.steps));
        CHECK(restores(memory, log.position(0)) && log.position(0).steps == boundary.steps + 1);
    };
    CHECK(kill_at_each_point(note_offset + sizeof(Position), leave_zero, script, check) > 50);
}
