// Questions to several answerers, as src/penstock/wiring/questions.py asks them: an asker has a slot at each answerer, and
// one payload for all of them. After any death each question is answered, and no answer is read torn.
#include <array>
#include <cstdint>
#include <memory>

#include "penstock/memory/slots.hpp"
#include "search.hpp"
#include "sim_atomic.hpp"

namespace penstock::model {
namespace {

using SimSlots = memory::Slots<SimAtomic>;

// All uses but the first are wrong.
enum class Use { right, ask_before_the_answer, no_wait_for_the_answerer };

// The asker holds all its slots while it asks nothing. It asks the answerers in turn. All processes may die:
//   1. An answerer's next life makes the question ready again that the dead one was reading.
//   2. An asker's next life withdraws the question of the dead one. It waits while an answerer still writes the answer.
class Asking final : public Scenario {
  public:
    static constexpr std::size_t answerers = 2;
    static constexpr std::size_t slot_bytes = SimSlots::required(1);
    static constexpr std::size_t nbytes = answerers * slot_bytes;

    Asking(unsigned char* memory, std::uint64_t questions, Use use)
        : slots_{SimSlots(memory, 1), SimSlots(memory + slot_bytes, 1)}, questions_(questions), use_(use) {}

    void live(std::size_t process, unsigned life) override {
        for (unsigned dead = 0; dead < life; ++dead) {
            for (std::size_t answerer = 0; answerer < answerers; ++answerer) {
                if (process == 0 || process == 1 + answerer) {
                    slots_[answerer].recover(owner(process, dead));
                }
            }
        }
        if (process > 0) {
            answer(slots_[process - 1], owner(process, life));
            return;
        }
        for (std::size_t slot = 0; slot < answerers && life > 0; ++slot) {
            while (!withdrawn(slots_[slot], owner(0, life - 1)) && use_ != Use::no_wait_for_the_answerer) {
                if (!explorer().idle()) {
                    return;
                }
            }
        }
        ask(owner(0, life));
    }

    void finish() override { HOLDS(answered_ == questions_); }

  private:
    static std::uint64_t owner(std::size_t process, unsigned life) { return 1 + process + 8 * life; }
    static std::uint64_t worth(std::uint64_t question) { return 100 * question; }

    static bool withdrawn(SimSlots& slots, std::uint64_t dead) {
        slots.recover(dead);
        if (slots.take(dead)) {
            HOLDS(slots.release(0, dead));
        }
        const bool answered = slots.claim(dead, 0).has_value();
        slots.recover(dead);
        return answered;
    }

    void ask(std::uint64_t owner) {
        for (SimSlots& slots : slots_) {
            HOLDS(slots.claim(owner, answered_).has_value() || use_ == Use::no_wait_for_the_answerer);
        }
        while (answered_ < questions_) {
            const std::uint64_t question = answered_ + 1;
            SimSlots& slots = slots_[question % answerers];
            question_.store(question);
            HOLDS(slots.push(0, owner));
            if (use_ == Use::ask_before_the_answer) {
                question_.store(question + 1);
            }
            while (!slots.claim(owner, question)) {
                if (!explorer().idle()) {
                    return;
                }
            }
            HOLDS(answer_.load() == worth(question));
            answered_ = question;
        }
    }

    void answer(SimSlots& slots, std::uint64_t owner) {
        for (;;) {
            if (!slots.take(owner)) {
                if (!explorer().idle()) {
                    return;
                }
                continue;
            }
            const std::uint64_t question = question_.load();
            HOLDS(question == answered_ + 1);
            answer_.store(worth(question));
            HOLDS(slots.release(0, owner));
        }
    }

    std::array<SimSlots, answerers> slots_;
    std::uint64_t questions_;
    Use use_;
    Plain question_;
    Plain answer_;
    std::uint64_t answered_ = 0;
};

Setting asking(const char* name, std::uint64_t questions, unsigned mortal, Bounds bounds, Use use = Use::right) {
    return {name, Asking::nbytes, 1 + Asking::answerers, mortal, bounds,
            [=](unsigned char* memory) { return std::make_unique<Asking>(memory, questions, use); }};
}

}  // namespace

TEST(questions, each_is_answered) { holds(asking("questions, two answerers", 3, 0b111, {2, 1, 1, 2})); }

TEST(questions, two_deaths) { holds(asking("questions, two deaths", 2, 0b111, {1, 0, 2, 2})); }

TEST(questions, one_that_is_asked_before_the_last_answer_is_found) {
    fails(asking("questions, asked before the answer", 2, 0, {2, 1, 0, 2}, Use::ask_before_the_answer));
}

TEST(questions, a_recovery_that_does_not_wait_for_the_answerer_is_found) {
    fails(asking("questions, no wait for the answerer", 2, 0b001, {2, 1, 1, 3}, Use::no_wait_for_the_answerer));
}

}  // namespace penstock::model
