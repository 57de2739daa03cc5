// Rounds under every schedule. After any death:
//   - all members of a round read the same payloads, and read them whole;
//   - a new member takes part only in rounds behind the state that it was given;
//   - no member waits for ever.
#include "penstock/memory/rounds.hpp"

#include <array>
#include <vector>

#include "search.hpp"
#include "sim_atomic.hpp"

namespace penstock::model {
namespace {

using SimRounds = memory::Rounds<SimAtomic>;
using memory::Joined;
using memory::Standing;

enum class Plant { nothing, arrives_before_its_payload, admits_before_it_has_told };

// The progress of a member: its number of rounds, and a sum over all payloads that it read.
struct Reached {
    std::uint64_t rounds;
    std::uint64_t sum;
};

class Cell {
  public:
    void store(const Reached& reached) {
        rounds_.store(reached.rounds);
        sum_.store(reached.sum);
    }
    Reached load() { return {rounds_.load(), sum_.load()}; }

  private:
    Plain rounds_;
    Plain sum_;
};

// Member 0 keeps its progress, as a learner with a commit record does. If no other member is left, its next life goes on
// from there.
class Meeting final : public Scenario {
  public:
    Meeting(unsigned char* memory, std::size_t members, std::uint64_t rounds, Plant plant)
        : rounds_(memory, members), members_(members), wanted_(rounds), plant_(plant) {}

    void live(std::size_t member, unsigned life) override {
        if (life > 0) {
            rounds_.remove(member);
        }
        Reached at{0, 0};
        if (!join(member, at)) {
            return;
        }
        while (at.rounds < wanted_) {
            admit(member, at);
            take_part(member, at);
            if (member == 0) {
                kept_ = at;
            }
        }
        reached_[member] = at.rounds;
        rounds_.remove(member);
    }

    void finish() override {
        HOLDS(reached_[0] == wanted_);
        HOLDS(rounds_.standing().members == 0 && rounds_.standing().arrived == 0);
    }

  private:
    static constexpr std::chrono::nanoseconds no_spin{0};

    // False if the run is over: no member is left to admit this one.
    bool join(std::size_t member, Reached& at) {
        for (;;) {
            const std::uint32_t seen = rounds_.word(member);
            const Joined joined = rounds_.join(member, member == 0);
            if (joined == Joined::admitted) {
                at = told_.load();
                return true;
            }
            if (joined == Joined::founded) {
                at = kept_;
                if (rounds_.standing().begun) {
                    results_.resize(at.rounds);  // the later rounds of the others are lost with them
                }
                return true;
            }
            if (reached_[0] == wanted_) {
                return false;
            }
            rounds_.sleep(member, seen, ceiling, no_spin);
        }
    }

    void admit(std::size_t member, const Reached& at) {
        if (rounds_.asking(member) == 0) {
            return;
        }
        if (plant_ == Plant::admits_before_it_has_told) {
            rounds_.admit(member);
            told_.store(at);
            return;
        }
        told_.store(at);
        rounds_.admit(member);
    }

    void take_part(std::size_t member, Reached& at) {
        const std::uint64_t round = rounds_.standing().round;
        Plain& mine = payload(member, round);
        if (plant_ == Plant::arrives_before_its_payload) {
            rounds_.arrive(member);
            mine.store(at.rounds * 100 + member);
        } else {
            mine.store(at.rounds * 100 + member);
            HOLDS(rounds_.arrive(member) == round);
        }
        for (std::uint32_t seen = rounds_.word(member); !rounds_.over(round); seen = rounds_.word(member)) {
            rounds_.sleep(member, seen, ceiling, no_spin);
        }
        read(member, round, at);
    }

    void read(std::size_t member, std::uint64_t round, Reached& at) {
        const std::uint64_t last = rounds_.standing().last;
        HOLDS((last & Standing::bit(member)) != 0);
        std::uint64_t sum = at.sum;
        for (std::size_t other = 0; other < members_; ++other) {
            if ((last & Standing::bit(other)) != 0) {
                const std::uint64_t value = payload(other, round).load();
                HOLDS(value == at.rounds * 100 + other);
                sum = 7 * sum + value + 1;
            }
        }
        if (results_.size() == at.rounds) {
            results_.push_back(sum);
        }
        HOLDS(results_.at(at.rounds) == sum);
        at = {at.rounds + 1, sum};
    }

    Plain& payload(std::size_t member, std::uint64_t round) { return payloads_.at(2 * member + round % 2); }

    static constexpr std::chrono::nanoseconds ceiling = std::chrono::milliseconds(100);

    SimRounds rounds_;
    std::size_t members_;
    std::uint64_t wanted_;
    Plant plant_;
    std::array<Plain, 6> payloads_;
    Cell told_;
    Reached kept_{0, 0};
    std::array<std::uint64_t, 3> reached_{};
    std::vector<std::uint64_t> results_;
};

Setting meeting(const char* name, std::size_t members, std::uint64_t rounds, unsigned mortal, Bounds bounds,
                Plant plant = Plant::nothing) {
    return {name, SimRounds::required(members, 0), members, mortal, bounds, [=](unsigned char* memory) {
                return std::make_unique<Meeting>(memory, members, rounds, plant);
            }};
}

}  // namespace

TEST(rounds, two_members_of_whom_the_keeper_dies) { holds(meeting("rounds, the keeper dies", 2, 3, 0b01, {2, 2, 1, 3})); }

TEST(rounds, two_members_of_whom_the_other_dies) { holds(meeting("rounds, the other dies", 2, 3, 0b10, {2, 2, 1, 3})); }

TEST(rounds, both_die) { holds(meeting("rounds, both die", 2, 2, 0b11, {1, 0, 2, 2})); }

TEST(rounds, three_members) { holds(meeting("rounds, three members", 3, 2, 0b010, {1, 1, 1, 2})); }

TEST(rounds, every_operation_is_needed) {
    every_operation_is_needed("rounds.hpp", {meeting("rounds, the other dies", 2, 2, 0b10, {2, 1, 1, 2})}, {});
}

TEST(rounds, an_arrival_before_the_payload_is_found) {
    fails(meeting("rounds, arrives before its payload", 2, 1, 0, {1, 0, 0, 1}, Plant::arrives_before_its_payload));
}

TEST(rounds, an_admission_before_it_was_told_is_found) {
    fails(meeting("rounds, admits before it has told", 2, 2, 0b10, {2, 0, 1, 3}, Plant::admits_before_it_has_told));
}

}  // namespace penstock::model
