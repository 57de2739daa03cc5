// Gradients that are handed on, as src/penstock/gradient_exchange/gradients.py and src/penstock/nodes/learner/ do it:
// learners push gradients into slots, and one owner applies them. After any death each gradient counts exactly once.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "penstock/memory/board.hpp"
#include "penstock/memory/record.hpp"
#include "penstock/memory/slots.hpp"
#include "search.hpp"
#include "sim_atomic.hpp"

namespace penstock::model {
namespace {

using memory::SlotState;
using SimSlots = memory::Slots<SimAtomic>;
using SimRecord = memory::Record<SimAtomic>;
using SimBoard = memory::Board<SimAtomic>;

// What learners learn from.
//   - table: each gradient is another one. A learner's next life goes on with a gradient of its own.
//   - stream: the gradients of a batch. A learner's next life goes on with the first one that is not settled.
enum class Source { table, stream };

// All uses but the first are wrong.
enum class Use {
    right,
    board_before_stream,      // a learner's next life looks at what is settled, and only then at what is on its way
    no_wait_for_its_own,      // a learner of a stream goes on while gradients of its dead life are on their way
    freed_before_publishing,  // the owner frees a slot before the board says that its gradient is settled
    settled_again,            // the owner's next life does not look whether the dead one has settled a gradient
    two_commits,              // the owner commits the parameters first, and then that the gradient is settled
};

// Learner k pushes its step s as sequence s * learners + k, with steps from 1. The owner takes these steps:
//   1. It takes a gradient and adds it to its parameters, unless it is settled.
//   2. It commits the parameters and which step of each learner is settled, as one record.
//   3. It publishes both on the board.
//   4. It frees the slot.
// All processes may die.
class HandingOn final : public Scenario {
  public:
    static constexpr std::size_t slots_count = 2;
    static constexpr std::size_t most_learners = 2;
    static constexpr std::size_t words = 1 + most_learners;  // the parameters, and each learner's last settled step
    static constexpr std::size_t record_offset = SimSlots::required(slots_count);
    static constexpr std::size_t board_offset = record_offset + SimRecord::required(words * sizeof(std::uint64_t));
    static constexpr std::size_t nbytes = board_offset + SimBoard::required(words, 2);

    HandingOn(unsigned char* memory, std::size_t learners, std::uint64_t gradients, Source source, Use use)
        : slots_(memory, slots_count),
          record_(memory + record_offset, words * sizeof(std::uint64_t)),
          board_(memory + board_offset, words, 2),
          learners_(learners),
          gradients_(gradients),
          source_(source),
          use_(use) {}

    void live(std::size_t process, unsigned life) override {
        for (unsigned dead = 0; dead < life; ++dead) {
            slots_.recover(owner(process, dead));
        }
        if (process < learners_) {
            learn(process, owner(process, life));
        } else {
            board_.recover();
            own(owner(process, life));
        }
    }

    void finish() override {
        std::uint64_t all = 0;
        for (std::size_t learner = 0; learner < learners_; ++learner) {
            for (std::uint64_t gradient = 0; gradient < gradients_; ++gradient) {
                all += worth(learner, gradient);
            }
        }
        const State state = committed();
        HOLDS(state.values[0] == all);
        HOLDS(slots_.count(SlotState::free) == slots_count);
        HOLDS(board_.version() == state.number);
    }

  private:
    struct State {
        std::array<std::uint64_t, words> values;
        std::int64_t number;
        std::uint64_t& settled(std::size_t learner) { return values[1 + learner]; }
    };

    static std::uint64_t owner(std::size_t process, unsigned life) { return 1 + process + 8 * life; }
    // A sum of such numbers says how often each of them is in it.
    static std::uint64_t worth(std::size_t learner, std::uint64_t gradient) {
        return std::uint64_t{1} << (8 * (4 * learner + gradient));
    }

    // The last step of a learner that is handed on and not freed, or 0.
    std::uint64_t on_their_way(std::size_t learner) {
        std::uint64_t last = 0;
        for (std::size_t index = 0; index < slots_count; ++index) {
            const memory::SlotWord slot = slots_.word(index);
            const bool pushed = slot.state == SlotState::ready || slot.state == SlotState::reading;
            if (pushed && slot.sequence % learners_ == learner) {
                last = std::max(last, slot.sequence / learners_);
            }
        }
        return last;
    }

    std::uint64_t settled(std::size_t learner) {
        State state{};
        const auto reading = board_.read([&](SimBoard::Source& from) {
            from.load(0, state.values.data(), sizeof state.values);
        });
        HOLDS(reading.whole);
        return state.settled(learner);
    }

    void learn(std::size_t learner, std::uint64_t owner) {
        const bool waits = source_ == Source::stream && use_ != Use::no_wait_for_its_own;
        while (board_.version().version < 0 || (waits && on_their_way(learner) > 0)) {
            if (!explorer().idle()) {
                return;
            }
        }
        std::uint64_t done = 0;
        std::uint64_t handed_on = 0;
        if (use_ == Use::board_before_stream) {
            done = settled(learner);
            handed_on = on_their_way(learner);
        } else {
            handed_on = on_their_way(learner);
            done = settled(learner);
        }
        std::uint64_t step = std::max(handed_on, done);
        // In a stream each step has the next gradient, so the last settled step is also the number of settled gradients.
        std::uint64_t next = source_ == Source::stream ? done : found_[learner];
        while (next < gradients_) {
            const auto index = slots_.claim(owner, (step + 1) * learners_ + learner);
            if (!index) {
                if (!explorer().idle()) {
                    return;
                }
                continue;
            }
            ++step;
            gradient_[*index].store(worth(learner, next));
            HOLDS(slots_.push(*index, owner));
            found_[learner] = ++next;
        }
    }

    State committed() {
        State state{{}, -1};
        if (const auto current = record_.current()) {
            const auto* from = record_.words(current->index);
            for (std::size_t i = 0; i < words; ++i) {
                state.values[i] = from[i].load(std::memory_order_relaxed);
            }
            state.number = current->number;
        }
        return state;
    }

    void commit(State& state) {
        ++state.number;
        auto* to = record_.words(record_.begin());
        for (std::size_t i = 0; i < words; ++i) {
            to[i].store(state.values[i], std::memory_order_relaxed);
        }
        HOLDS(record_.commit(state.number));
    }

    void publish(const State& state) {
        board_.begin();
        board_.store(0, state.values.data(), sizeof state.values);
        board_.finish(state.number);
    }

    void own(std::uint64_t owner) {
        State state = committed();
        if (state.number < 0) {
            commit(state);
        }
        publish(state);
        for (;;) {
            const auto index = slots_.take(owner);
            if (!index) {
                if (!explorer().idle()) {
                    return;
                }
                continue;
            }
            settle(*index, owner, state);
        }
    }

    void settle(std::size_t index, std::uint64_t owner, State& state) {
        const std::uint64_t sequence = slots_.word(index).sequence;
        const std::size_t learner = sequence % learners_;
        const std::uint64_t step = sequence / learners_;
        const std::uint64_t gradient = gradient_[index].load();
        if (step > state.settled(learner) || use_ == Use::settled_again) {
            state.values[0] += gradient;
            if (use_ == Use::two_commits) {
                commit(state);
            }
            state.settled(learner) = step;
            commit(state);
            if (use_ == Use::freed_before_publishing) {
                HOLDS(slots_.release(index, owner));
            }
            publish(state);
        }
        if (use_ != Use::freed_before_publishing || slots_.word(index).owner == owner) {
            HOLDS(slots_.release(index, owner));
        }
    }

    SimSlots slots_;
    SimRecord record_;
    SimBoard board_;
    std::size_t learners_;
    std::uint64_t gradients_;
    Source source_;
    Use use_;
    std::array<Plain, slots_count> gradient_;
    std::array<std::uint64_t, most_learners> found_{};  // gradients that each learner has pushed
};

Setting handing_on(const char* name, std::size_t learners, std::uint64_t gradients, Source source, Bounds bounds,
                   Use use = Use::right) {
    const unsigned all = (1U << (learners + 1)) - 1;
    return {name, HandingOn::nbytes, learners + 1, all, bounds, [=](unsigned char* memory) {
                return std::make_unique<HandingOn>(memory, learners, gradients, source, use);
            }};
}

}  // namespace

TEST(handed_on, of_a_table_each_counts_once) {
    holds(handing_on("handed on, of a table", 1, 3, Source::table, {2, 1, 1, 2}));
}

TEST(handed_on, of_a_stream_each_counts_once) {
    holds(handing_on("handed on, of a stream", 1, 3, Source::stream, {2, 1, 1, 2}));
}

TEST(handed_on, two_deaths) {
    for (const Source source : {Source::table, Source::stream}) {
        holds(handing_on("handed on, two deaths", 1, 2, source, {1, 0, 2, 2}));
    }
}

TEST(handed_on, two_learners) {
    for (const Source source : {Source::table, Source::stream}) {
        holds(handing_on("handed on, two learners", 2, 1, source, {1, 0, 1, 2}));
    }
}

TEST(handed_on, a_learner_that_looks_at_the_board_first_is_found) {
    fails(handing_on("handed on, board before stream", 1, 2, Source::table, {2, 1, 1, 3}, Use::board_before_stream));
}

TEST(handed_on, a_learner_that_does_not_wait_for_its_own_is_found) {
    fails(handing_on("handed on, no wait for its own", 1, 2, Source::stream, {1, 0, 1, 2}, Use::no_wait_for_its_own));
}

TEST(handed_on, slots_freed_before_publishing_are_found) {
    fails(handing_on("handed on, freed before publishing", 1, 2, Source::table, {2, 0, 1, 3},
                     Use::freed_before_publishing));
}

TEST(handed_on, a_gradient_that_is_settled_again_is_found) {
    fails(handing_on("handed on, settled again", 1, 2, Source::table, {1, 0, 1, 2}, Use::settled_again));
}

TEST(handed_on, two_commits_for_one_gradient_are_found) {
    fails(handing_on("handed on, two commits", 1, 2, Source::table, {1, 0, 1, 2}, Use::two_commits));
}

}  // namespace penstock::model
