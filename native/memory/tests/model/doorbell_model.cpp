// The doorbell under every schedule: a process that saw no work and sleeps is woken by any later ring. Simulated sleeps
// have no time-out.
#include "penstock/memory/doorbell.hpp"

#include <array>

#include "search.hpp"
#include "sim_atomic.hpp"

namespace penstock::model {
namespace {

using SimBells = memory::Doorbells<SimAtomic>;

enum class Sleep { on_the_word, on_a_descriptor, read_the_word_after_looking };

// Producers add work and ring. One consumer does the work, or sleeps. It looks for work by relaxed loads, because the bell
// makes the work visible.
class Workshop final : public Scenario {
  public:
    static constexpr std::size_t work_offset = SimBells::required(1);
    static constexpr std::size_t nbytes = work_offset + memory::cache_line;

    Workshop(unsigned char* memory, std::size_t producers, std::uint64_t pieces, Sleep sleep)
        : bells_(memory),
          work_(reinterpret_cast<SimAtomic<std::uint64_t>*>(memory + work_offset)),
          readable_(*reinterpret_cast<SimAtomic<std::uint32_t>*>(memory + work_offset + memory::cache_line / 2)),
          producers_(producers),
          pieces_(pieces),
          sleep_(sleep) {}

    void live(std::size_t process, unsigned life) override {
        if (process < producers_) {
            produce(process, life);
        } else {
            consume(life);
        }
    }

    void finish() override { HOLDS(done_ == producers_ * pieces_ && bells_.sleepers(0) == 0); }

  private:
    void produce(std::size_t producer, unsigned life) {
        if (life > 0) {
            ring();  // a recovery rings, because the dead process may have died between its work and its ring
        }
        for (; given_[producer] < pieces_; ring()) {
            work_[producer].store(given_[producer] + 1, std::memory_order_relaxed);
            ++given_[producer];
        }
    }

    void ring() {
        if (bells_.ring(0) && sleep_ == Sleep::on_a_descriptor) {
            readable_.exchange(1);
            explorer().wake(&readable_);
        }
    }

    void consume(unsigned life) {
        if (life > 0) {
            bells_.recover(0);
        }
        for (;;) {
            std::uint32_t seen = bells_.word(0);
            done_ = 0;
            for (std::size_t producer = 0; producer < producers_; ++producer) {
                done_ += work_[producer].load(std::memory_order_relaxed);
            }
            if (done_ == producers_ * pieces_) {
                return;
            }
            if (sleep_ == Sleep::read_the_word_after_looking) {
                seen = bells_.word(0);
            }
            if (sleep_ == Sleep::on_a_descriptor) {
                select(seen);
            } else {
                bells_.wait(0, seen, SimBells::ceiling, std::chrono::nanoseconds(0));
            }
        }
    }

    // The sleep of a process that also waits for sockets.
    void select(std::uint32_t seen) {
        if (bells_.arm(0, seen)) {
            explorer().sleep_while(&readable_, 0);
        }
        bells_.disarm(0);
        readable_.exchange(0);
    }

    SimBells bells_;
    SimAtomic<std::uint64_t>* work_;
    SimAtomic<std::uint32_t>& readable_;  // the kernel's own word: seq_cst throughout
    std::size_t producers_;
    std::uint64_t pieces_;
    Sleep sleep_;
    std::uint64_t done_ = 0;
    std::array<std::uint64_t, 2> given_{};
};

Setting workshop(const char* name, std::size_t producers, std::uint64_t pieces, Bounds bounds,
                 Sleep sleep = Sleep::on_the_word) {
    return {name, Workshop::nbytes, producers + 1, 0b111, bounds,
            [=](unsigned char* memory) { return std::make_unique<Workshop>(memory, producers, pieces, sleep); }};
}

}  // namespace

TEST(doorbell, one_producer) { holds(workshop("doorbell, a producer", 1, 2, {3, 2, 1, 4})); }

TEST(doorbell, two_producers) { holds(workshop("doorbell, two producers", 2, 1, {2, 2, 1, 3})); }

TEST(doorbell, sleep_on_a_descriptor) {
    holds(workshop("doorbell, sleep on a descriptor", 1, 2, {3, 2, 1, 4}, Sleep::on_a_descriptor));
}

TEST(doorbell, every_operation_is_needed) {
    every_operation_is_needed("doorbell.hpp",
                              {workshop("doorbell, a producer", 1, 2, {2, 2, 1, 3}),
                               workshop("doorbell, sleep on a descriptor", 1, 2, {2, 2, 1, 3}, Sleep::on_a_descriptor)},
                              {});
}

TEST(doorbell, a_word_that_is_read_after_looking_for_work_is_found) {
    fails(workshop("doorbell, word read after looking for work", 1, 1, {2, 1, 0, 2},
                   Sleep::read_the_word_after_looking));
}

}  // namespace penstock::model
