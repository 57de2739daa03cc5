// The board under every schedule: no record is torn, versions never go back, and a reader never waits for a writer, alive
// or dead. The protocol cannot rule out that another program writes into the board; the checksum finds it.
#include "penstock/memory/board.hpp"

#include <array>
#include <map>

#include "search.hpp"
#include "sim_atomic.hpp"

namespace penstock::model {
namespace {

using SimBoard = memory::Board<SimAtomic>;

constexpr std::size_t words = 2;
constexpr std::size_t buffers = 2;  // readers are disturbed as often as possible
using Value = std::array<std::uint64_t, words>;

// All but the first are wrong.
enum class Reader { right, keeps_a_torn_copy, trusts_the_stamp };

SimBoard::Reading load(const SimBoard& board, Value& value, Reader reader) {
    bool copied = false;
    return board.read([&](SimBoard::Source& from) {
        Value again{};
        from.load(0, again.data(), sizeof again);
        if (!copied || reader != Reader::keeps_a_torn_copy) {
            value = again;
        }
        copied = true;
    });
}

std::uint64_t checksum(const Value& value, std::int64_t version) {
    memory::Checksum sum;
    for (std::size_t i = 0; i < words; ++i) {
        memory::RunningSums<std::uint64_t> one;
        one.add(value[i]);
        sum.add(one.plain, one.running, i, 1, 1);
    }
    return sum.value(0, static_cast<std::uint64_t>(version));
}

// One process publishes, the others read. A version that a death has interrupted is published again, with another value.
class Bulletin final : public Scenario {
  public:
    Bulletin(unsigned char* memory, std::int64_t versions, int reads, Reader reader)
        : board_(memory, words, buffers), versions_(versions), reads_(reads), reader_(reader) {}

    void live(std::size_t process, unsigned life) override {
        if (process == 0) {
            publish(life);
        } else {
            read(process);
        }
    }

    void finish() override {
        Value value{};
        HOLDS(load(board_, value, Reader::right) == versions_ - 1 && value == written_);
    }

  private:
    void publish(unsigned life) {
        if (life > 0) {
            HOLDS(board_.recover() == open_);
            open_ = false;
            HOLDS(!board_.recover());
        }
        for (std::int64_t version = board_.version().version + 1; version < versions_; ++version) {
            const std::uint64_t first = static_cast<std::uint64_t>(version) * 10 + life;
            written_ = {first, first + 100};
            board_.begin();
            open_ = true;
            board_.store(0, &written_[0], sizeof(std::uint64_t));
            board_.store(1, &written_[1], sizeof(std::uint64_t));
            checksums_[{version, life}] = checksum(written_, version);
            board_.finish(version);
            open_ = false;
        }
    }

    void read(std::size_t reader) {
        for (int i = 0; i < reads_; ++i) {
            Value value{};
            const auto [version, whole] = load(board_, value, reader_);
            HOLDS(whole);  // only the writer writes
            HOLDS(version >= last_[reader]);
            last_[reader] = version;
            // A value that is read with a version was published with it.
            const auto published = checksums_.find({version, static_cast<unsigned>(value[0] % 10)});
            HOLDS(version < 0 || (published != checksums_.end() && published->second == checksum(value, version)));
            const SimBoard::Reading latest = board_.version();
            HOLDS(latest.whole && latest.version >= version);
        }
    }

    SimBoard board_;
    std::int64_t versions_;
    int reads_;
    Reader reader_;
    bool open_ = false;
    Value written_{};
    std::map<std::pair<std::int64_t, unsigned>, std::uint64_t> checksums_;  // of a version and the life that published it
    std::array<std::int64_t, 4> last_{-1, -1, -1, -1};
};

// A third process writes into the latest record at any time.
class Intruded final : public Scenario {
  public:
    Intruded(unsigned char* memory, Reader reader)
        : board_(memory, words, buffers),
          word_(*reinterpret_cast<SimBoard::Word*>(memory + SimBoard::required(0, 1))),
          reader_(reader) {}

    void live(std::size_t process, unsigned) override {
        if (process == 0) {
            publish(0);
            publish(1);
        } else if (process == 1) {
            if (board_.version() == last) {
                word_.fetch_add(1, std::memory_order_relaxed);
                intruded_ = true;
            }
        } else {
            Value value{};
            const auto [version, whole] = load(board_, value, reader_);
            if (whole || reader_ == Reader::trusts_the_stamp) {
                HOLDS(version < 0 || value == of(version));
            } else {
                HOLDS(version == last && intruded_);
            }
        }
    }

    void finish() override {
        Value value{};
        HOLDS(load(board_, value, Reader::right) == SimBoard::Reading(last, !intruded_));
    }

  private:
    static constexpr std::int64_t last = 1;  // publication 2, in buffer 0; the writer no longer changes it

    static Value of(std::int64_t version) {
        const std::uint64_t first = static_cast<std::uint64_t>(version) * 10;
        return {first, first + 100};
    }

    void publish(std::int64_t version) {
        const Value value = of(version);
        board_.begin();
        board_.store(0, value.data(), sizeof value);
        board_.finish(version);
    }

    SimBoard board_;
    SimBoard::Word& word_;
    Reader reader_;
    bool intruded_ = false;
};

Setting bulletin(const char* name, std::int64_t versions, std::size_t readers, int reads, Bounds bounds,
                 Reader reader = Reader::right) {
    return {name, SimBoard::required(words, buffers), 1 + readers, 0b1, bounds,
            [=](unsigned char* memory) { return std::make_unique<Bulletin>(memory, versions, reads, reader); }};
}

Setting intruded(const char* name, Reader reader) {
    return {name, SimBoard::required(words, buffers), 3, 0, {3, 2, 0, 4},
            [=](unsigned char* memory) { return std::make_unique<Intruded>(memory, reader); }};
}

}  // namespace

TEST(board, one_reader) { holds(bulletin("board, a reader", 4, 1, 2, {3, 2, 1, 3})); }

TEST(board, two_readers) { holds(bulletin("board, two readers", 3, 2, 1, {2, 2, 1, 3})); }

TEST(board, an_intruder_is_found) { holds(intruded("board, somebody else writes", Reader::right)); }

TEST(board, a_torn_copy_that_is_kept_is_found) {
    fails(bulletin("board, a torn copy is kept", 4, 1, 1, {3, 2, 0, 3}, Reader::keeps_a_torn_copy));
}

TEST(board, a_reader_without_the_checksum_is_found) {
    fails(intruded("board, somebody else writes and the stamp alone is trusted", Reader::trusts_the_stamp));
}

// One of these operations is the store of the checksum.
TEST(board, every_operation_is_needed) {
    every_operation_is_needed("board.hpp", {bulletin("board, a reader", 4, 1, 2, {3, 2, 1, 3}),
                               bulletin("board, a slow reader", 3, 1, 1, {1, 4, 0, 5})},
                              {
                               // The reaping has already synchronised.
                               "board.hpp recover load acquire -> relaxed"});
}

}  // namespace penstock::model
