// The table under every schedule: a slot that a reader takes for whole is whole, after any death.
#include "penstock/memory/table.hpp"

#include <array>

#include "search.hpp"
#include "sim_atomic.hpp"

namespace penstock::model {
namespace {

using SimTable = memory::Table<SimAtomic>;

// Ways to use a table; all but the first are wrong.
enum class Use { right, push_before_payload, fill_before_claim, no_last_look };

// One ring. The writer fills slots 0, 1, ...; readers copy the latest ones. In the product the payload is plain memory. Here
// it is relaxed words, which allow the race that a reader must notice. Relaxed words could also return a value from the
// future, which Places leaves out. So each store into a slot checks that every copy of the slot happened before; otherwise
// it counts the copy as overwritten.
class Ring final : public Scenario {
  public:
    static constexpr std::size_t slots = 2;
    static constexpr std::size_t words = 2;
    static constexpr std::size_t nbytes = SimTable::required(1) + slots * words * sizeof(std::uint64_t);

    Ring(unsigned char* memory, std::uint64_t most, int reads, Use use)
        : table_(memory, 1, slots),
          payload_(reinterpret_cast<Word*>(memory + SimTable::required(1))),
          most_(most),
          reads_(reads),
          use_(use) {}

    void live(std::size_t process, unsigned life) override {
        if (process == 0) {
            write(life);
        } else {
            read(process);
        }
    }

    void finish() override {
        HOLDS(table_.written(0) == most_ && table_.claimed(0) == most_);
        HOLDS(table_.oldest(0) == (most_ < slots ? 0 : most_ - slots));
    }

  private:
    using Word = SimAtomic<std::uint64_t>;
    struct Copy {
        std::uint64_t sequence;
        std::uint16_t clock;  // clock of its process while it loads; 0: it does not load
        bool overrun;
        bool accepted;
    };

    Word& word(std::uint64_t sequence, std::size_t i) { return payload_[sequence % slots * words + i]; }

    // The first life that pushes a sequence decides its value.
    void write(unsigned life) {
        for (std::uint64_t sequence = table_.written(0); sequence < most_; ++sequence) {
            HOLDS(sequence >= pushed_);
            value_[sequence] = 100 * (sequence + 1) + life;
            if (use_ == Use::fill_before_claim) {
                fill(sequence);
            }
            HOLDS(table_.claim(0, sequence));
            HOLDS(!table_.claim(0, sequence + 1));
            if (use_ == Use::push_before_payload) {
                HOLDS(table_.push(0, sequence));
            }
            if (use_ != Use::fill_before_claim) {
                fill(sequence);
            }
            if (use_ != Use::push_before_payload) {
                HOLDS(table_.push(0, sequence));
            }
            pushed_ = sequence + 1;
        }
    }

    void fill(std::uint64_t sequence) {
        for (std::size_t i = 0; i < words; ++i) {
            word(sequence, i).store(value_[sequence], std::memory_order_relaxed);
            const Knowledge& known = explorer().places().knowledge(explorer().process());
            for (std::size_t process = 1; process < copy_.size(); ++process) {
                Copy& copy = copy_[process];
                copy.overrun |= copy.clock > known.clock[process] && copy.sequence % slots == sequence % slots;
                HOLDS(!copy.overrun || !copy.accepted);
            }
        }
    }

    void read(std::size_t process) {
        for (int i = 0; i < reads_; ++i) {
            const std::uint64_t written = table_.written(0);
            // Reads the oldest slot that can be there, which the writer overwrites next, and then the one after it.
            const std::uint64_t oldest = written < slots ? 0 : written - slots;
            const std::uint64_t sequence = oldest + static_cast<std::uint64_t>(i) % slots;
            if (sequence >= written) {
                continue;
            }
            Copy& copy = copy_[process];
            copy = {sequence, explorer().places().knowledge(process).clock[process], false, false};
            std::array<std::uint64_t, words> value{};
            for (std::size_t cell = 0; cell < words; ++cell) {
                value[cell] = word(sequence, cell).load(std::memory_order_relaxed);
            }
            if (use_ != Use::no_last_look && sequence < table_.oldest(0)) {
                copy.clock = 0;
                continue;
            }
            copy.accepted = true;
            HOLDS(!copy.overrun);
            for (const std::uint64_t cell : value) {
                HOLDS(cell == value_[sequence]);
            }
        }
    }

    SimTable table_;
    Word* payload_;
    std::uint64_t most_;
    int reads_;
    Use use_;
    std::uint64_t pushed_ = 0;
    std::array<std::uint64_t, 8> value_{};
    std::array<Copy, 4> copy_{};
};

Setting ring(const char* name, std::uint64_t most, std::size_t readers, int reads, unsigned mortal, Bounds bounds,
             Use use = Use::right) {
    return {name, Ring::nbytes, 1 + readers, mortal, bounds,
            [=](unsigned char* memory) { return std::make_unique<Ring>(memory, most, reads, use); }};
}

}  // namespace

TEST(table, one_reader) { holds(ring("table, a writer and a reader", 4, 1, 3, 0b11, {3, 2, 1, 3})); }

TEST(table, two_readers) { holds(ring("table, a writer and two readers", 3, 2, 2, 0b111, {2, 2, 1, 3})); }

TEST(table, every_operation_is_needed) {
    every_operation_is_needed("table.hpp", {ring("table, a writer and a reader", 4, 1, 3, 0b11, {2, 2, 1, 3})}, {});
}

TEST(table, a_push_before_the_payload_is_found) {
    fails(ring("table, pushed before the payload", 3, 1, 2, 0, {2, 1, 0, 2}, Use::push_before_payload));
}

TEST(table, a_payload_before_the_claim_is_found) {
    fails(ring("table, filled before the claim", 4, 1, 2, 0, {2, 1, 0, 2}, Use::fill_before_claim));
}

TEST(table, a_copy_without_a_last_look_is_found) {
    fails(ring("table, copied without a last look", 4, 1, 2, 0, {2, 1, 0, 2}, Use::no_last_look));
}

}  // namespace penstock::model
