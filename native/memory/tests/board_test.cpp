#include "penstock/memory/board.hpp"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "check.hpp"

using penstock::memory::Board;
using penstock::memory::load_words;
using penstock::test::Memory;

namespace {

constexpr std::size_t words = 33;

void publish(Board<>& board, std::int64_t version, std::uint64_t value) {
    const std::vector<std::uint64_t> record(words, value);
    board.begin();
    board.store(0, record.data(), 8 * sizeof(std::uint64_t));
    board.store(8, record.data(), (words - 8) * sizeof(std::uint64_t));
    board.finish(version);
}

// The latest version, and the value that all of its words hold.
std::int64_t read_whole(const Board<>& board, std::uint64_t& value) {
    std::vector<std::uint64_t> record(words);
    const std::int64_t version = board.read([&](const Board<>::Word* from) {
        load_words<std::atomic>(record.data(), from, words * sizeof(std::uint64_t), std::memory_order_acquire);
    });
    value = record[0];
    for (const std::uint64_t word : record) {
        CHECK(word == value);
    }
    return version;
}

}  // namespace

TEST(board, the_latest_value_wins) {
    for (const std::size_t buffers : {2U, 3U}) {
        const Memory memory(Board<>::required(words, buffers));
        Board<> board(memory.get(), words, buffers);
        std::uint64_t value = 1;
        CHECK(board.version() == -1 && read_whole(board, value) == -1);
        for (std::int64_t version = 0; version < 7; ++version) {
            publish(board, version, static_cast<std::uint64_t>(version) + 100);
            CHECK(board.version() == version);
            CHECK(read_whole(board, value) == version && value == static_cast<std::uint64_t>(version) + 100);
        }
    }
}

TEST(board, part_words_keep_their_bytes) {
    const Memory memory(Board<>::required(2, 2));
    Board<> board(memory.get(), 2, 2);
    board.begin();
    board.store(0, "eleven byte", 11);
    board.finish(0);
    char text[12] = "...........";
    CHECK(board.read([&](const Board<>::Word* from) {
        load_words<std::atomic>(text, from, 11, std::memory_order_acquire);
    }) == 0);
    CHECK(std::strcmp(text, "eleven byte") == 0);
}

TEST(board, readers_never_see_a_torn_record) {
    const Memory memory(Board<>::required(words, 2));  // two buffers: the most disturbance that there can be
    std::atomic<bool> done{false};
    std::thread writer([&] {
        Board<> board(memory.get(), words, 2);
        for (std::int64_t version = 0; version < 20000; ++version) {
            // A version comes twice, with another value, as when an update is redone after a death.
            publish(board, version / 2, static_cast<std::uint64_t>(version));
            if (version % 64 == 0) {
                std::this_thread::yield();
            }
        }
        done.store(true);
    });
    const auto read = [&] {
        const Board<> board(memory.get(), words, 2);
        std::int64_t last = -1;
        bool stop = false;
        while (!stop) {
            stop = done.load();
            std::uint64_t value = 0;
            const std::int64_t version = read_whole(board, value);
            CHECK(version >= last);
            CHECK(version < 0 || static_cast<std::int64_t>(value / 2) == version);
            last = version;
        }
        CHECK(last == 9999);
    };
    std::thread first(read);
    std::thread second(read);
    writer.join();
    first.join();
    second.join();
}

TEST(board, a_death_at_each_point_leaves_a_whole_record) {
    const auto script = [](unsigned char* memory) {
        Board<> board(memory, words, 2);
        publish(board, 4, 4);
        publish(board, 5, 5);
        publish(board, 6, 6);
    };
    const int points = penstock::test::die_at_each_point(
        Board<>::required(words, 2), script, [](unsigned char* memory, const std::string& point) {
            Board<> board(memory, words, 2);
            std::uint64_t value = 0;
            const std::int64_t before = read_whole(board, value);
            CHECK(before == -1 || static_cast<std::uint64_t>(before) == value);
            CHECK(board.recover() == (point != "board.finish.latest"));
            CHECK(!board.recover());
            CHECK(read_whole(board, value) == before);
            for (std::int64_t version = 7; version < 11; ++version) {
                publish(board, version, static_cast<std::uint64_t>(version));
                CHECK(read_whole(board, value) == version && value == static_cast<std::uint64_t>(version));
            }
        });
    CHECK(points == 18);
}
