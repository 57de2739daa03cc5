// Slots under every schedule: no slot is lost, read twice or torn. The slots of each writer come first in, first out.
#include "penstock/memory/slots.hpp"

#include <array>
#include <optional>

#include "search.hpp"
#include "sim_atomic.hpp"

namespace penstock::model {
namespace {

using memory::SlotState;
using memory::SlotWord;
using SimSlots = memory::Slots<SimAtomic>;

// Ways to use slots; all but the first are wrong.
enum class Use { right, push_before_payload, read_after_release, recover_nothing };

// Some processes write, the others read; each slot's payload is two cells of plain memory.
class Stream final : public Scenario {
  public:
    static constexpr std::size_t slots_count = 2;

    Stream(unsigned char* memory, std::size_t writers, std::size_t rounds, std::size_t readers, Use use)
        : slots_(memory, slots_count), writers_(writers), rounds_(rounds), readers_(readers), use_(use) {}

    void live(std::size_t process, unsigned life) override {
        died_ |= life > 0;
        // Takes back the slots of all earlier lives. The process may die during this as well; then its next life repeats it.
        for (unsigned dead = 0; dead < life && use_ != Use::recover_nothing; ++dead) {
            slots_.recover(owner(process, dead));
        }
        if (process < writers_) {
            write(process, owner(process, life));
        } else {
            read(process - writers_, owner(process, life));
        }
    }

    void finish() override {
        HOLDS(slots_.count(SlotState::free) == slots_count);
        for (std::size_t sequence = 0; sequence < writers_ * rounds_; ++sequence) {
            HOLDS(released_[sequence] == (pushed_[sequence] ? 1 : 0));
        }
    }

  private:
    static std::uint64_t owner(std::size_t process, unsigned life) { return 1 + process + 8 * life; }
    static std::uint64_t value(std::uint64_t sequence, std::size_t cell) { return 100 * (sequence + 1) + cell; }

    void write(std::size_t writer, std::uint64_t owner) {
        while (round_[writer] < rounds_) {
            const std::uint64_t sequence = round_[writer] * writers_ + writer;
            const std::optional<std::size_t> index = slots_.claim(owner, sequence);
            if (!index) {
                if (!explorer().idle()) {
                    return;
                }
                continue;
            }
            ++round_[writer];  // a process that dies while it writes goes on with the next sequence
            if (use_ == Use::push_before_payload) {
                push(*index, owner, sequence);
            }
            for (std::size_t cell = 0; cell < 2; ++cell) {
                payload_[*index][cell].store(value(sequence, cell));
            }
            if (use_ != Use::push_before_payload) {
                push(*index, owner, sequence);
            }
        }
    }

    void push(std::size_t index, std::uint64_t owner, std::uint64_t sequence) {
        HOLDS(slots_.push(index, owner));
        pushed_[sequence] = true;
    }

    void read(std::size_t reader, std::uint64_t owner) {
        for (;;) {
            const std::optional<std::size_t> index = slots_.take(owner);
            if (!index) {
                if (!explorer().idle()) {
                    return;
                }
                continue;
            }
            const std::uint64_t sequence = slots_.word(*index).sequence;
            HOLDS(pushed_[sequence] && released_[sequence] == 0);
            // There is no order between readers, and none for a slot that came back from a dead reader.
            std::uint64_t& next = next_[reader][sequence % writers_];
            HOLDS(sequence >= next || (readers_ > 1 && died_));
            if (use_ == Use::read_after_release) {
                release(*index, owner, sequence);
            }
            for (std::size_t cell = 0; cell < 2; ++cell) {
                HOLDS(payload_[*index][cell].load() == value(sequence, cell));
            }
            if (use_ != Use::read_after_release) {
                release(*index, owner, sequence);
            }
            next = sequence + 1;
        }
    }

    void release(std::size_t index, std::uint64_t owner, std::uint64_t sequence) {
        HOLDS(slots_.release(index, owner));
        ++released_[sequence];
    }

    SimSlots slots_;
    std::size_t writers_;
    std::size_t rounds_;
    std::size_t readers_;
    Use use_;
    bool died_ = false;
    std::array<std::array<Plain, 2>, slots_count> payload_;
    std::array<std::size_t, 2> round_{};
    std::array<bool, 8> pushed_{};
    std::array<int, 8> released_{};
    std::array<std::array<std::uint64_t, 2>, 2> next_{};
};

// One process writes a slot. The other one looks at it until it is there, and reads its content without taking it.
class View final : public Scenario {
  public:
    explicit View(unsigned char* memory) : slots_(memory, 1) {}

    void live(std::size_t process, unsigned /*life*/) override {
        if (process == 0) {
            const std::optional<std::size_t> index = slots_.claim(1, 0);
            HOLDS(index.has_value());
            payload_.store(7);
            HOLDS(slots_.push(*index, 1));
            return;
        }
        while (slots_.word(0).state != SlotState::ready) {
            if (!explorer().idle()) {
                return;
            }
        }
        HOLDS(payload_.load() == 7);
    }

    void finish() override { HOLDS(slots_.count(SlotState::ready) == 1); }

  private:
    SimSlots slots_;
    Plain payload_;
};

Setting view() {
    return {"slots, a writer and a viewer", SimSlots::required(1), 2, 0, {2, 1, 0, 2},
            [](unsigned char* memory) { return std::make_unique<View>(memory); }};
}

Setting stream(const char* name, std::size_t writers, std::size_t rounds, std::size_t readers, unsigned mortal,
               Bounds bounds, Use use = Use::right) {
    return {name, SimSlots::required(Stream::slots_count), writers + readers, mortal, bounds,
            [=](unsigned char* memory) { return std::make_unique<Stream>(memory, writers, rounds, readers, use); }};
}

}  // namespace

Setting learner();  // learner_model.cpp

TEST(slots, one_writer_one_reader) { holds(stream("slots, a writer and a reader", 1, 3, 1, 0b11, {2, 1, 1, 3})); }

TEST(slots, two_writers) { holds(stream("slots, two writers and a reader", 2, 2, 1, 0b111, {2, 1, 1, 2})); }

TEST(slots, two_readers) { holds(stream("slots, a writer and two readers", 1, 3, 2, 0b111, {2, 1, 1, 2})); }

TEST(slots, a_viewer) { holds(view()); }

TEST(slots, every_operation_is_needed) {
    every_operation_is_needed("slots.hpp",
                              {stream("slots, a writer and a reader", 1, 3, 1, 0b11, {1, 1, 1, 2}),
                               stream("slots, two writers and a reader", 2, 2, 1, 0b111, {1, 1, 1, 2}), view(), learner()},
                              {
                               // recover(): the reaping has already synchronised.
                               "slots.hpp move compare_exchange acq_rel -> release",
                               // An exchange of any order continues the release sequence of the push.
                               "slots.hpp release_consumed compare_exchange acq_rel -> release",
                               // The scan has already acquired the word that is exchanged.
                               "slots.hpp take compare_exchange acquire -> relaxed"});
}

TEST(slots, a_push_before_the_payload_is_found) {
    fails(stream("slots, pushed before the payload", 1, 2, 1, 0, {2, 1, 0, 2}, Use::push_before_payload));
}

TEST(slots, a_read_after_the_release_is_found) {
    fails(stream("slots, read after the release", 1, 3, 1, 0, {2, 1, 0, 2}, Use::read_after_release));
}

TEST(slots, a_missing_recovery_is_found) {
    fails(stream("slots, a dead owner's slots kept", 1, 3, 1, 0b11, {2, 1, 1, 2}, Use::recover_nothing));
}

}  // namespace penstock::model
