// Where a schedule can go on in several ways, a Choices object picks one: depth first, at random, or from a list.
//
// Pick 0 is always the way without a deviation: the same process goes on, the load returns the newest value, no process
// dies.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace penstock::model {

// A schedule: the picks other than 0, each with its number among the choices.
using Schedule = std::vector<std::pair<std::size_t, std::size_t>>;

enum class Question { who_goes_on, which_value, who_dies };

class Choices {
  public:
    virtual ~Choices() = default;

    void begin() { picks_.clear(); }

    std::size_t pick(Question question, std::size_t options) {
        const std::size_t picked = options == 1 ? 0 : decide(question, picks_.size(), options);
        picks_.push_back(static_cast<std::uint8_t>(picked));
        return picked;
    }

    [[nodiscard]] Schedule schedule() const {
        Schedule deviations;
        for (std::size_t at = 0; at < picks_.size(); ++at) {
            if (picks_[at] != 0) {
                deviations.emplace_back(at, picks_[at]);
            }
        }
        return deviations;
    }

    // Goes on to another schedule. False if there is none left.
    virtual bool next() = 0;

  protected:
    virtual std::size_t decide(Question question, std::size_t at, std::size_t options) = 0;

  private:
    std::vector<std::uint8_t> picks_;
};

// Every schedule once, by re-execution: the last choice with an untried option takes that option.
class DepthFirst final : public Choices {
  public:
    bool next() override {
        while (!path_.empty() && path_.back().picked + 1 == path_.back().options) {
            path_.pop_back();
        }
        if (path_.empty()) {
            return false;
        }
        ++path_.back().picked;
        replayed_ = 0;
        return true;
    }

  protected:
    std::size_t decide(Question, std::size_t, std::size_t options) override {
        if (replayed_ == path_.size()) {
            path_.push_back({0, options});
        }
        return path_[replayed_++].picked;
    }

  private:
    struct Step {
        std::size_t picked;
        std::size_t options;
    };
    std::vector<Step> path_;  // the choices with more than one option
    std::size_t replayed_ = 0;
};

// Deviates at random, at each choice one time in 2, 4, 8, 16 or 32. Each schedule chooses one of these numbers at random.
// So there are schedules with many deviations and schedules with few.
class Chance final : public Choices {
  public:
    Chance(std::uint64_t seed, std::uint64_t schedules) : numbers_(seed), left_(schedules) { next(); }

    bool next() override {
        for (unsigned& one_in : one_in_) {
            one_in = 2U << (numbers_() % 5);
        }
        return left_-- > 0;
    }

  protected:
    std::size_t decide(Question question, std::size_t, std::size_t options) override {
        const std::uint64_t number = numbers_();
        const unsigned one_in = one_in_[static_cast<std::size_t>(question)];
        return number % one_in == 0 ? static_cast<std::size_t>(number / one_in) % options : 0;
    }

  private:
    std::mt19937_64 numbers_;
    std::uint64_t left_;
    std::array<unsigned, 3> one_in_{};
};

class Replay final : public Choices {
  public:
    explicit Replay(Schedule schedule) : schedule_(std::move(schedule)) {}

    bool next() override { return false; }

  protected:
    std::size_t decide(Question, std::size_t at, std::size_t) override {
        for (const auto& [position, picked] : schedule_) {
            if (position == at) {
                return picked;
            }
        }
        return 0;
    }

  private:
    Schedule schedule_;
};

}  // namespace penstock::model
