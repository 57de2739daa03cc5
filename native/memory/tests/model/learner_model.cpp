// Stream, commit record and board together, as a learner uses them. After any death each pushed transition is learned
// exactly once, and only committed states are published.
#include <array>
#include <optional>
#include <span>

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

// All orders but the first are wrong.
enum class Order { right, free_before_commit, nothing_freed_on_taking_over, publish_before_commit };

// An environment process pushes sequences. A learner takes these steps:
//   1. It takes a batch of one or two sequences and adds them to its state.
//   2. It commits the state and the consumed sequences.
//   3. It publishes.
//   4. It frees the slots.
// Both processes may die.
class Training final : public Scenario {
  public:
    static constexpr std::size_t slots_count = 2;
    static constexpr std::uint64_t sequences = 3;
    static constexpr std::size_t words = 3;  // the sum, and the sequences consumed, each plus 1
    static constexpr std::size_t record_offset = SimSlots::required(slots_count);
    static constexpr std::size_t board_offset = record_offset + SimRecord::required(words * sizeof(std::uint64_t));
    static constexpr std::size_t nbytes = board_offset + SimBoard::required(1, 2);

    Training(unsigned char* memory, Order order)
        : slots_(memory, slots_count),
          record_(memory + record_offset, words * sizeof(std::uint64_t)),
          board_(memory + board_offset, 1, 2),
          order_(order) {}

    void live(std::size_t process, unsigned life) override {
        for (unsigned dead = 0; dead < life; ++dead) {
            slots_.recover(owner(process, dead));
        }
        if (process == 0) {
            write(owner(0, life));
        } else {
            board_.recover();
            learn(owner(1, life));
        }
    }

    void finish() override {
        HOLDS(slots_.count(SlotState::free) == slots_count);
        const State state = committed();
        HOLDS(state.sum == pushed_);
        HOLDS(board_.version() == state.number);
    }

  private:
    struct State {
        std::uint64_t sum;
        std::int64_t number;
        std::array<std::uint64_t, 2> consumed;
    };

    static constexpr std::uint64_t nothing = ~std::uint64_t{0};  // consumed no sequence: 0 in the record

    static std::uint64_t owner(std::size_t process, unsigned life) { return 1 + process + 8 * life; }
    static std::uint64_t worth(std::uint64_t sequence) { return std::uint64_t{1} << (8 * sequence); }

    void write(std::uint64_t owner) {
        while (next_ < sequences) {
            const auto index = slots_.claim(owner, next_);
            if (!index) {
                if (!explorer().idle()) {
                    return;
                }
                continue;
            }
            const std::uint64_t sequence = next_++;
            payload_[*index].store(worth(sequence));
            HOLDS(slots_.push(*index, owner));
            pushed_ += worth(sequence);
        }
    }

    State committed() {
        State state{0, -1, {nothing, nothing}};
        if (const auto current = record_.current()) {
            const auto* from = record_.words(current->index);
            state.sum = from[0].load(std::memory_order_relaxed);
            state.number = current->number;
            for (std::size_t i = 0; i < 2; ++i) {
                state.consumed[i] = from[1 + i].load(std::memory_order_relaxed) - 1;
            }
        }
        return state;
    }

    void learn(std::uint64_t owner) {
        State state = committed();
        HOLDS(board_.version().version <= state.number);  // the published state was committed before
        if (order_ != Order::nothing_freed_on_taking_over) {
            slots_.release_consumed(owner, state.consumed);
        }
        if (state.number > board_.version().version) {
            publish(state);
        }
        for (;;) {
            std::array<std::size_t, 2> batch{};
            const std::size_t size = take(owner, batch);
            if (size == 0) {
                if (!explorer().idle()) {
                    return;
                }
                continue;
            }
            update(owner, state, std::span(batch).first(size));
        }
    }

    std::size_t take(std::uint64_t owner, std::array<std::size_t, 2>& batch) {
        std::size_t size = 0;
        while (size < batch.size()) {
            const auto index = slots_.take(owner);
            if (!index) {
                break;
            }
            batch[size++] = *index;
        }
        return size;
    }

    void update(std::uint64_t owner, State& state, std::span<const std::size_t> batch) {
        state.consumed = {nothing, nothing};
        for (std::size_t i = 0; i < batch.size(); ++i) {
            state.consumed[i] = slots_.word(batch[i]).sequence;
            const std::uint64_t value = payload_[batch[i]].load();
            HOLDS(value == worth(state.consumed[i]));
            state.sum += value;
        }
        ++state.number;
        if (order_ == Order::free_before_commit) {
            free(owner, state);
        }
        if (order_ == Order::publish_before_commit) {
            publish(state);
        }
        auto* to = record_.words(record_.begin());
        to[0].store(state.sum, std::memory_order_relaxed);
        to[1].store(state.consumed[0] + 1, std::memory_order_relaxed);
        to[2].store(state.consumed[1] + 1, std::memory_order_relaxed);
        HOLDS(record_.commit(state.number));
        if (order_ != Order::publish_before_commit) {
            publish(state);
        }
        if (order_ != Order::free_before_commit) {
            free(owner, state);
        }
    }

    void publish(const State& state) {
        board_.begin();
        board_.store(0, &state.sum, sizeof state.sum);
        board_.finish(state.number);
    }

    void free(std::uint64_t owner, const State& state) { slots_.release_consumed(owner, state.consumed); }

    SimSlots slots_;
    SimRecord record_;
    SimBoard board_;
    Order order_;
    std::array<Plain, slots_count> payload_;
    std::uint64_t next_ = 0;
    std::uint64_t pushed_ = 0;
};

Setting training(const char* name, Bounds bounds, Order order) {
    return {name, Training::nbytes, 2, 0b11, bounds,
            [=](unsigned char* memory) { return std::make_unique<Training>(memory, order); }};
}

}  // namespace

Setting learner() { return training("learner", {2, 1, 1, 2}, Order::right); }

TEST(learner, nothing_lost_nothing_doubled) { holds(learner()); }

TEST(learner, two_deaths) { holds(training("learner, two deaths", {1, 0, 2, 2}, Order::right)); }

TEST(learner, slots_freed_before_the_commit_are_found) {
    fails(training("learner, slots freed before the commit", {1, 0, 1, 2}, Order::free_before_commit));
}

TEST(learner, a_successor_that_frees_nothing_is_found) {
    fails(training("learner, consumed slots kept on taking over", {1, 0, 1, 2}, Order::nothing_freed_on_taking_over));
}

TEST(learner, a_publication_before_the_commit_is_found) {
    fails(training("learner, published before the commit", {1, 0, 1, 2}, Order::publish_before_commit));
}

}  // namespace penstock::model
