// The commit record under every schedule: there is always one whole record, the old one or the new one. An overwritten copy
// is reported.
#include "penstock/memory/record.hpp"

#include <array>
#include <optional>

#include "search.hpp"
#include "sim_atomic.hpp"

namespace penstock::model {
namespace {

using SimRecord = memory::Record<SimAtomic>;

// The writer commits 1, 2, ...; copiers copy the current record. In the product the payload is plain memory. Here it is
// relaxed words, which allow the race that a copy must notice. Relaxed words could also return a value from the future,
// which Places leaves out. So each store into a buffer checks that every copy of the buffer happened before; otherwise it
// counts the copy as overwritten.
class Ledger final : public Scenario {
  public:
    static constexpr std::size_t words = 2;
    static constexpr std::size_t nbytes = words * sizeof(std::uint64_t);

    Ledger(unsigned char* memory, std::int64_t commits, int copies)
        : record_(memory, nbytes), commits_(commits), copies_(copies) {}

    void live(std::size_t process, unsigned life) override {
        if (process == 0) {
            commit(life);
        } else {
            copy(process);
        }
    }

    void finish() override { HOLDS(committed() == commits_); }

  private:
    struct Copy {
        std::size_t index;
        std::uint16_t clock;  // clock of its process while it loads
        bool overrun;
        bool accepted;
    };

    // The last commit, as the writer or its successor finds it. It must be whole.
    std::int64_t committed() {
        const auto current = record_.current();
        for (std::size_t i = 0; current && i < words; ++i) {
            const std::uint64_t word = record_.words(current->index)[i].load(std::memory_order_relaxed);
            HOLDS(word == static_cast<std::uint64_t>(current->number));
        }
        return current ? current->number : 0;
    }

    void commit(unsigned life) {
        if (life > 0) {
            HOLDS(record_.recover() == open_);
        }
        HOLDS(committed() == last_ || open_);
        for (std::int64_t number = last_ + 1; number <= commits_; ++number) {
            const std::size_t index = record_.begin();
            open_ = true;
            for (std::size_t i = 0; i < words; ++i) {
                store(index, i, static_cast<std::uint64_t>(number));
            }
            HOLDS(record_.commit(number));
            last_ = number;
            open_ = false;
        }
    }

    void store(std::size_t index, std::size_t word, std::uint64_t value) {
        record_.words(index)[word].store(value, std::memory_order_relaxed);
        const Knowledge& known = explorer().places().knowledge(explorer().process());
        for (std::size_t process = 1; process < copy_.size(); ++process) {
            Copy& copy = copy_[process];
            copy.overrun |= copy.clock > known.clock[process] && copy.index == index;
            HOLDS(!copy.overrun || !copy.accepted);
        }
    }

    void copy(std::size_t process) {
        std::int64_t last = 0;
        for (int i = 0; i < copies_; ++i) {
            std::array<std::uint64_t, words> value{};
            Copy& copy = copy_[process];
            const auto number = record_.copy([&](std::size_t index, const SimRecord::Word* from) {
                copy = {index, explorer().places().knowledge(process).clock[process], false, false};
                memory::load_words<SimAtomic>(value.data(), from, nbytes, std::memory_order_relaxed);
            });
            if (!number) {
                copy.clock = 0;
                continue;
            }
            copy.accepted = true;
            HOLDS(!copy.overrun && *number >= last);
            last = *number;
            for (const std::uint64_t word : value) {
                HOLDS(static_cast<std::int64_t>(word) == *number);
            }
        }
    }

    SimRecord record_;
    std::int64_t commits_;
    int copies_;
    std::int64_t last_ = 0;
    bool open_ = false;
    std::array<Copy, 4> copy_{};
};

Setting ledger(const char* name, std::int64_t commits, std::size_t copiers, int copies, Bounds bounds) {
    return {name, SimRecord::required(Ledger::nbytes), 1 + copiers, 0b1, bounds,
            [=](unsigned char* memory) { return std::make_unique<Ledger>(memory, commits, copies); }};
}

}  // namespace

TEST(record, one_copier) { holds(ledger("record, a copier", 4, 1, 2, {3, 2, 1, 3})); }

TEST(record, two_copiers) { holds(ledger("record, two copiers", 3, 2, 1, {2, 2, 1, 3})); }

TEST(record, every_operation_is_needed) {
    every_operation_is_needed("record.hpp", {ledger("record, a copier", 4, 1, 2, {3, 2, 1, 3})},
                              {
                               // Only the writer and its successor read it, and these two have synchronised already.
                               "record.hpp current load acquire -> relaxed",
                               // The same holds for both loads.
                               "record.hpp recover load acquire -> relaxed",
                               "record.hpp recover load acquire -> relaxed"});
}

}  // namespace penstock::model
