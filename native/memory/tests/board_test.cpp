#include "penstock/memory/board.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "check.hpp"

using penstock::memory::Board;
using penstock::memory::Checksum;
using penstock::memory::load_words;
using penstock::memory::SumInto;
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
    const auto reading = board.read([&](Board<>::Source& from) {
        from.load(0, record.data(), words * sizeof(std::uint64_t));
    });
    CHECK(reading.whole);
    value = record[0];
    for (const std::uint64_t word : record) {
        CHECK(word == value);
    }
    return reading.version;
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
    CHECK(board.read([&](Board<>::Source& from) { from.load(0, text, 11); }) == 0);
    CHECK(std::strcmp(text, "eleven byte") == 0);
}

namespace {

// The words of a buffer, where they lie.
std::uint64_t* payload(const Memory& memory, std::size_t of, std::size_t buffer) {
    const std::size_t stride = Board<>::required(of, 1) - Board<>::required(0, 0);
    return reinterpret_cast<std::uint64_t*>(memory.get() + Board<>::required(0, 1) + buffer * stride);
}

}  // namespace

TEST(board, what_somebody_else_wrote_is_found) {
    const Memory memory(Board<>::required(words, 3));
    Board<> board(memory.get(), words, 3);
    std::vector<std::uint64_t> record(words);
    for (std::size_t i = 0; i < words; ++i) {
        record[i] = 0x3f80000040000000U + i;
    }
    for (std::int64_t version = 0; version < 2; ++version) {
        board.begin();
        board.store(0, record.data(), words * sizeof(std::uint64_t));
        board.finish(version);
    }
    std::uint64_t* at = payload(memory, words, 2);  // the second publication
    const auto all = [&](Board<>::Source& from) { from.load(0, record.data(), words * sizeof(std::uint64_t)); };
    const auto little = [&](Board<>::Source& from) { from.load(words / 2, record.data(), sizeof(std::uint64_t)); };
    const Board<>::Reading whole{1}, damaged{1, false};
    CHECK(board.read(all) == whole && board.read(little) == whole);
    for (std::size_t i = 0; i < words; ++i) {
        for (std::size_t bit = 0; bit < 64; ++bit) {
            at[i] ^= std::uint64_t{1} << bit;
            CHECK(board.read(all) == damaged && board.read(little) == damaged);
            at[i] ^= std::uint64_t{1} << bit;
        }
    }
    for (std::size_t i = 1; i < words; ++i) {
        std::swap(at[0], at[i]);
        CHECK(board.read(all) == damaged && board.read(little) == damaged);
        std::swap(at[0], at[i]);
    }
    CHECK(board.read(all) == whole && board.read(little) == whole);
    // The head of that buffer: stamp, version, checksum.
    const auto none = [](Board<>::Source&) {};
    for (std::uint64_t* head = at - 8; head < at - 5; ++head) {
        for (std::size_t bit = 0; bit < 64; ++bit) {
            *head ^= std::uint64_t{1} << bit;
            CHECK(!board.read(none).whole);
            CHECK(head != at - 8 || !board.version().whole);  // a reader does not wait for a stamp that no writer will set
            *head ^= std::uint64_t{1} << bit;
        }
    }
    CHECK(board.read(all) == whole && board.version() == whole);
}

// Words that plain sums would mix up: zeros, ones and signs.
TEST(board, words_in_the_wrong_place_are_found) {
    constexpr std::size_t many = 4099;
    constexpr std::uint64_t sign = std::uint64_t{1} << 63;
    const Memory memory(Board<>::required(many, 2));
    Board<> board(memory.get(), many, 2);
    std::vector<std::uint64_t> record(many);
    for (const std::size_t distance : {1U, 2U, 64U, 1024U, 4096U}) {
        for (const std::uint64_t other : {sign, std::uint64_t{1}, std::uint64_t{0x3ff0000000000000U}, ~std::uint64_t{0}}) {
            std::fill(record.begin(), record.end(), 0);
            record[1] = other;
            for (std::int64_t version = 0; version < 2; ++version) {
                board.begin();
                board.store(0, record.data(), many * sizeof(std::uint64_t));
                board.finish(version);
            }
            std::uint64_t* at = payload(memory, many, 0);
            CHECK(at[1] == other);
            CHECK(board.read([](Board<>::Source&) {}).whole);
            std::swap(at[1], at[1 + distance]);
            CHECK(!board.read([](Board<>::Source&) {}).whole);
            std::swap(at[1], at[1 + distance]);
            std::fill(at, at + 2048, other);  // half of it from another record
            CHECK(!board.read([](Board<>::Source&) {}).whole);
        }
    }
}

// A copy adds up pieces of any length, two words at a time where it can, otherwise one at a time.
TEST(board, a_checksum_does_not_depend_on_how_it_is_added_up) {
    std::vector<std::uint64_t> record(words);
    for (std::size_t i = 0; i < words; ++i) {
        record[i] = penstock::memory::hash_word(i, i);
    }
    Checksum apart;
    for (std::size_t i = words; i-- > 0;) {
        apart.add(record[i] ^ (record[i] >> 32), record[i] ^ (record[i] >> 32), i, 1, 1);
    }
    std::vector<std::uint64_t> copy(words);
    const auto* from = reinterpret_cast<const Board<>::Word*>(record.data());
    for (std::size_t first = 0; first <= words; ++first) {
        Checksum pieces;
        const std::size_t left = first * sizeof(std::uint64_t), right = (words - first) * sizeof(std::uint64_t);
        load_words<std::atomic>(copy.data(), from, left, std::memory_order_acquire, SumInto{pieces, 0});
        load_words<std::atomic>(copy.data(), from + first, right, std::memory_order_acquire, SumInto{pieces, first});
        CHECK(pieces.value(3, 4) == apart.value(3, 4));
        CHECK(pieces.value(4, 4) != apart.value(3, 4) && pieces.value(3, 5) != apart.value(3, 4));
    }
}

TEST(board, readers_never_see_a_torn_record) {
    const Memory memory(Board<>::required(words, 2));  // two buffers: readers are disturbed as often as possible
    std::atomic<bool> done{false};
    std::thread writer([&] {
        Board<> board(memory.get(), words, 2);
        for (std::int64_t version = 0; version < 20000; ++version) {
            // Each version is published twice, with different values, as when an update is repeated after a death.
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
    CHECK(points == 21);
}
