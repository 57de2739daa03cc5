// The action log under every schedule: a copy of an episode holds its actions, or says that it does not.
#include "penstock/memory/action_log.hpp"

#include <array>

#include "search.hpp"
#include "sim_atomic.hpp"

namespace penstock::model {
namespace {

using SimLog = memory::ActionLog<SimAtomic>;

// One lane:
//   1. The writer appends actions. From time to time it notes its position, as a commit record does.
//   2. After its death the next writer goes back to the start of the noted episode. It writes the same actions over
//      themselves, and then goes on with others.
//   3. The copier restores the noted episode.
class Diary final : public Scenario {
  public:
    static constexpr std::size_t capacity = 3;
    static constexpr std::size_t action_bytes = 12;  // a word and a half
    static constexpr std::size_t note_offset = SimLog::required(1, action_bytes, capacity);
    static constexpr std::size_t nbytes = note_offset + memory::cache_line;
    static constexpr std::int64_t most = 8;

    Diary(unsigned char* memory, std::int64_t actions, int copies, std::memory_order note_order)
        : log_(memory, action_bytes, capacity),
          note_(*reinterpret_cast<SimAtomic<std::int64_t>*>(memory + note_offset)),
          actions_(actions),
          copies_(copies),
          note_order_(note_order) {}

    void live(std::size_t process, unsigned life) override {
        if (process == 0) {
            write(life);
        } else {
            copy();
        }
    }

    void finish() override {
        const memory::Position at = log_.position(0);
        HOLDS(at.episode == expected_.episode && at.first_step == expected_.first_step);
        HOLDS(at.steps == expected_.steps && at.hash == expected_.hash);
        HOLDS(at.first_step + at.steps == actions_);
        std::array<unsigned char, most * action_bytes> bytes{};
        HOLDS(log_.content(0, noted_[noted_count_], bytes.data()));  // the ring has not been overwritten
    }

  private:
    using Action = std::array<std::uint32_t, 3>;
    static Action action(std::int64_t number, unsigned life) {
        const auto first = static_cast<std::uint32_t>(10 * number + life);
        return {first, first + 1000, first + 2000};
    }

    static std::int64_t hashed(std::int64_t hash, std::int64_t number) {
        return static_cast<std::int64_t>(memory::hash_bytes(static_cast<std::uint64_t>(hash), &number, sizeof number));
    }

    // Episodes of two actions; the position is noted after the first of each.
    void write(unsigned life) {
        expected_ = noted_[noted_count_];
        if (life > 0) {
            expected_.steps = 0;
            expected_.hash = static_cast<std::int64_t>(memory::hash_start);
            log_.rewind(0, expected_);
            const memory::Position at = log_.position(0);
            HOLDS(at.episode == expected_.episode && at.first_step == expected_.first_step);
            HOLDS(at.steps == expected_.steps && at.hash == expected_.hash);
        } else {
            log_.begin_episode(0, 1);
            expected_ = {1, 0, 0, static_cast<std::int64_t>(memory::hash_start)};
        }
        for (std::int64_t number = expected_.first_step + expected_.steps; number < actions_; ++number) {
            if (expected_.steps == 2) {
                log_.begin_episode(0, expected_.episode + 1);
                expected_ = {expected_.episode + 1, number, 0, static_cast<std::int64_t>(memory::hash_start)};
            }
            const memory::Position& noted = noted_[noted_count_];
            if (number >= noted.first_step + noted.steps) {
                written_[static_cast<std::size_t>(number)] = action(number, life);
            }
            log_.append(0, written_[static_cast<std::size_t>(number)].data());
            log_.observe(0, &number, sizeof number);
            ++expected_.steps;
            expected_.hash = hashed(expected_.hash, number);
            if (expected_.steps == 1 && number >= noted.first_step + noted.steps) {
                noted_[noted_count_ + 1] = log_.position(0);
                HOLDS(noted_[noted_count_ + 1].hash == expected_.hash);
                note_.store(static_cast<std::int64_t>(noted_count_ + 1), std::memory_order_release);
                ++noted_count_;
            }
        }
    }

    void copy() {
        for (int i = 0; i < copies_; ++i) {
            const auto note = static_cast<std::size_t>(note_.load(note_order_));
            const memory::Position at = noted_[note];
            std::array<unsigned char, most * action_bytes> bytes{};
            if (!log_.content(0, at, bytes.data())) {
                continue;
            }
            for (std::int64_t step = 0; step < at.steps; ++step) {
                const Action& expected = written_[static_cast<std::size_t>(at.first_step + step)];
                const unsigned char* copied = bytes.data() + static_cast<std::size_t>(step) * action_bytes;
                HOLDS(std::memcmp(copied, expected.data(), action_bytes) == 0);
            }
        }
    }

    SimLog log_;
    SimAtomic<std::int64_t>& note_;
    std::int64_t actions_;
    int copies_;
    std::memory_order note_order_;
    memory::Position expected_{};
    std::size_t noted_count_ = 0;
    std::array<memory::Position, most> noted_{};
    std::array<Action, most> written_{};
};

Setting diary(const char* name, unsigned mortal, std::memory_order note_order, Bounds bounds) {
    return {name, Diary::nbytes, 2, mortal, bounds,
            [=](unsigned char* memory) { return std::make_unique<Diary>(memory, 6, 2, note_order); }};
}

// Another process gets a position through the release of a commit record.
Setting with_deaths(unsigned deviations) {
    return diary("action log, a copier", 0b1, std::memory_order_acquire, {2, 2, 1, deviations});
}

// While the writer lives, a guessed position is good enough.
Setting without_deaths() { return diary("action log, positions guessed", 0, std::memory_order_relaxed, {2, 2, 0, 3}); }

}  // namespace

TEST(action_log, copies_are_whole) { holds(with_deaths(3)); }

TEST(action_log, copies_of_guessed_positions_are_whole) { holds(without_deaths()); }

TEST(action_log, every_operation_is_needed) {
    every_operation_is_needed("action_log.hpp", {with_deaths(2), without_deaths()},
                              {
                               // Only the writer and its successor read it, and a successor goes back to the noted position.
                               "action_log.hpp append store release -> relaxed",
                               // Only the writer and its successor read it, and these two have synchronised already.
                               "action_log.hpp position load acquire -> relaxed",
                               // A copier has its position from a commit record, which made the actions visible as well.
                               "action_log.hpp rewind store release -> relaxed"});
}

TEST(action_log, every_word_is_needed) {
    every_operation_is_needed("words.hpp", {with_deaths(2), without_deaths()}, {});
}

}  // namespace penstock::model
