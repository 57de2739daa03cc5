// The board under every schedule: never torn, never backwards, and a reader never waits for a writer, alive or dead.
#include "penstock/memory/board.hpp"

#include <array>

#include "search.hpp"
#include "sim_atomic.hpp"

namespace penstock::model {
namespace {

using SimBoard = memory::Board<SimAtomic>;

// One process publishes, the others read. A version that was cut by a death is published again, with another value.
class Bulletin final : public Scenario {
  public:
    static constexpr std::size_t words = 2;
    static constexpr std::size_t buffers = 2;  // the most disturbance that there can be
    using Value = std::array<std::uint64_t, words>;

    Bulletin(unsigned char* memory, std::int64_t versions, int reads)
        : board_(memory, words, buffers), versions_(versions), reads_(reads) {}

    void live(std::size_t process, unsigned life) override {
        if (process == 0) {
            publish(life);
        } else {
            read(process, life);
        }
    }

    void finish() override {
        Value value{};
        HOLDS(load(value) == versions_ - 1 && value[0] == written_ && value[1] == written_);
    }

  private:
    void publish(unsigned life) {
        if (life > 0) {
            HOLDS(board_.recover() == open_);
            open_ = false;
            HOLDS(!board_.recover());
        }
        for (std::int64_t version = board_.version() + 1; version < versions_; ++version) {
            written_ = static_cast<std::uint64_t>(version) * 10 + life;
            const Value value{written_, written_};
            board_.begin();
            open_ = true;
            board_.store(0, value.data(), sizeof(std::uint64_t));
            board_.store(1, value.data(), sizeof(std::uint64_t));
            board_.finish(version);
            open_ = false;
        }
    }

    void read(std::size_t reader, unsigned) {
        for (int i = 0; i < reads_; ++i) {
            Value value{};
            const std::int64_t version = load(value);
            HOLDS(version >= last_[reader]);
            last_[reader] = version;
            HOLDS(version < 0 || (value[0] == value[1] && static_cast<std::int64_t>(value[0] / 10) == version));
        }
    }

    std::int64_t load(Value& value) const {
        return board_.read([&value](const SimBoard::Word* from) {
            memory::load_words<SimAtomic>(value.data(), from, sizeof value, std::memory_order_acquire);
        });
    }

    SimBoard board_;
    std::int64_t versions_;
    int reads_;
    bool open_ = false;
    std::uint64_t written_ = 0;
    std::array<std::int64_t, 4> last_{-1, -1, -1, -1};
};

Setting bulletin(const char* name, std::int64_t versions, std::size_t readers, int reads, Bounds bounds) {
    return {name, SimBoard::required(Bulletin::words, Bulletin::buffers), 1 + readers, 0b1, bounds,
            [=](unsigned char* memory) { return std::make_unique<Bulletin>(memory, versions, reads); }};
}

}  // namespace

TEST(board, one_reader) { holds(bulletin("board, a reader", 4, 1, 2, {3, 2, 1, 3})); }

TEST(board, two_readers) { holds(bulletin("board, two readers", 3, 2, 1, {2, 2, 1, 3})); }

TEST(board, every_operation_is_needed) {
    every_operation_is_needed("board.hpp", {bulletin("board, a reader", 4, 1, 2, {3, 2, 1, 3}),
                               bulletin("board, a slow reader", 3, 1, 1, {2, 3, 0, 5})},
                              {
                               // The number that names the buffer is stored after it, with release.
                               "board.hpp finish store release -> relaxed",
                               // Reaping has synchronised already.
                               "board.hpp recover load acquire -> relaxed"});
}

}  // namespace penstock::model
