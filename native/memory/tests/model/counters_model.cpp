// Counters under every schedule: sums are exact after any death, and never more things are counted as arrived than as left.
#include "penstock/memory/counters.hpp"

#include <array>

#include "search.hpp"
#include "sim_atomic.hpp"

namespace penstock::model {
namespace {

using SimCounters = memory::Counters<SimAtomic>;

// Two movers count a thing when it leaves, and again when it arrives. The auditor reads the counter of arrivals first. Each
// mover also sets one cell of its own row.
class Audit final : public Scenario {
  public:
    static constexpr std::size_t rows = 2;

    Audit(unsigned char* memory, std::size_t movers, std::int64_t things)
        : counters_(memory, 3), movers_(movers), things_(things) {}

    void live(std::size_t process, unsigned) override {
        if (process < movers_) {
            move(process);
        } else {
            audit();
        }
    }

    void finish() override {
        HOLDS(counters_.get(0, 0) == left_ && counters_.get(0, 1) == arrived_);
        for (std::size_t mover = 0; mover < movers_; ++mover) {
            HOLDS(counters_.get(mover, 2) == things_);
        }
    }

  private:
    void move(std::size_t mover) {
        while (moved_[mover] < things_) {
            counters_.add(0, 0, 2);
            left_ += 2;
            counters_.set(mover, 2, moved_[mover] + 1);
            counters_.add(0, 1, 2);
            arrived_ += 2;
            ++moved_[mover];
        }
    }

    void audit() const {
        for (std::int64_t i = 0; i < things_; ++i) {
            const std::int64_t set = counters_.get(0, 2);
            HOLDS(counters_.get(0, 0) >= 2 * set);
            const std::int64_t arrived = counters_.get(0, 1);
            HOLDS(counters_.get(0, 0) >= arrived);
        }
    }

    SimCounters counters_;
    std::size_t movers_;
    std::int64_t things_;
    std::array<std::int64_t, 2> moved_{};
    std::int64_t left_ = 0;
    std::int64_t arrived_ = 0;
};

Setting audit(const char* name, std::size_t movers, std::int64_t things, Bounds bounds) {
    return {name, SimCounters::required(Audit::rows, 3), movers + 1, 0b11, bounds,
            [=](unsigned char* memory) { return std::make_unique<Audit>(memory, movers, things); }};
}

}  // namespace

TEST(counters, two_movers) { holds(audit("counters, two movers", 2, 2, {2, 2, 1, 3})); }

TEST(counters, every_operation_is_needed) {
    every_operation_is_needed("counters.hpp", {audit("counters, a mover", 1, 2, {2, 2, 1, 3})}, {});
}

}  // namespace penstock::model
