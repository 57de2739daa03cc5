// Action log: for each lane a ring of its last actions, its episode and its position in the episode.
//
// With the episode's seed the log restores an environment:
//   1. Reset the environment with the seed.
//   2. Play the actions again.
//   3. Compare the hash of the observations. The log holds no observations.
//
// The actions of a lane are numbered from 0 through all episodes. Action a stands at a % capacity. There is one writer:
// the process that steps the lanes. Other processes may copy an episode, and learn whether the writer has overwritten a
// part of it meanwhile. Zero-filled memory is a valid log.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include "penstock/memory/fault.hpp"
#include "penstock/memory/hash.hpp"
#include "penstock/memory/words.hpp"

namespace penstock::memory {

// The position of a lane: `steps` actions into `episode`. The first action of the episode has the number `first_step`.
struct Position {
    std::int64_t episode;
    std::int64_t first_step;
    std::int64_t steps;
    std::int64_t hash;
};

template <template <class> class Atomic = std::atomic>
class ActionLog {
  public:
    using Word = Atomic<std::uint64_t>;

    static constexpr std::size_t required(std::size_t lanes, std::size_t action_bytes, std::size_t capacity) {
        return lanes * (sizeof(Lane) + round_to_line(capacity * words_for(action_bytes) * sizeof(Word)));
    }

    ActionLog(void* memory, std::size_t action_bytes, std::size_t capacity)
        : memory_(static_cast<unsigned char*>(memory)),
          action_bytes_(action_bytes),
          action_words_(words_for(action_bytes)),
          capacity_(static_cast<std::int64_t>(capacity)),
          stride_(sizeof(Lane) + round_to_line(capacity * action_words_ * sizeof(Word))) {}

    // Starts an episode; observe() then adds its first observation.
    void begin_episode(std::size_t index, std::int64_t episode) {
        Lane& lane = this->lane(index);
        // relaxed, as wherever only the writer reads the value: other processes get positions from the commit record.
        lane.episode.store(episode, std::memory_order_relaxed);
        lane.first_step.store(lane.total.load(std::memory_order_relaxed), std::memory_order_relaxed);
        lane.hash.store(hash_start, std::memory_order_relaxed);
    }

    void append(std::size_t index, const void* action) {
        Lane& lane = this->lane(index);
        const std::int64_t number = lane.total.load(std::memory_order_relaxed);
        // `begun` is never lowered: after rewind() the ring stays overwritten up to the highest number ever begun.
        // relaxed: the words below are stored with release, so a reader that sees one of them sees this mark too.
        if (lane.begun.load(std::memory_order_relaxed) <= number) {
            lane.begun.store(number + 1, std::memory_order_relaxed);
        }
        PENSTOCK_FAULT_POINT("action_log.append.begun");
        store_words<Atomic>(ring(index) + at(number), action, action_bytes_, std::memory_order_release);
        PENSTOCK_FAULT_POINT("action_log.append.stored");
        // `whole` is never lowered. release: a reader that sees the number sees the action.
        if (lane.whole.load(std::memory_order_relaxed) <= number) {
            lane.whole.store(number + 1, std::memory_order_release);
        }
        PENSTOCK_FAULT_POINT("action_log.append.whole");
        // release: if the writer dies, the count never includes an action that is not whole.
        lane.total.store(number + 1, std::memory_order_release);
        PENSTOCK_FAULT_POINT("action_log.append.after");
    }

    void observe(std::size_t index, const void* observation, std::size_t nbytes) {
        Word& hash = lane(index).hash;
        hash.store(hash_bytes(hash.load(std::memory_order_relaxed), observation, nbytes), std::memory_order_relaxed);
    }

    // Only for the writer, or for its successor after its death.
    [[nodiscard]] Position position(std::size_t index) const {
        const Lane& lane = this->lane(index);
        const std::int64_t first = lane.first_step.load(std::memory_order_relaxed);
        return {lane.episode.load(std::memory_order_relaxed), first,
                lane.total.load(std::memory_order_acquire) - first,
                static_cast<std::int64_t>(lane.hash.load(std::memory_order_relaxed))};
    }

    // Goes back to an earlier position, to which a new writer has restored the lane.
    void rewind(std::size_t index, const Position& position) {
        Lane& lane = this->lane(index);
        lane.episode.store(position.episode, std::memory_order_relaxed);
        lane.first_step.store(position.first_step, std::memory_order_relaxed);
        lane.hash.store(static_cast<std::uint64_t>(position.hash), std::memory_order_relaxed);
        PENSTOCK_FAULT_POINT("action_log.rewind.between");
        lane.total.store(position.first_step + position.steps, std::memory_order_release);
    }

    // Copies the episode's actions up to the position, action_bytes each. False if some of them are missing: the episode is
    // longer than the ring, or the writer has overwritten them before or during the copy.
    bool content(std::size_t index, const Position& position, void* to) const {
        const Lane& lane = this->lane(index);
        const std::int64_t end = position.first_step + position.steps;
        // acquire: pairs with append(). Why `whole` and not `total`: a new writer that restores its lanes has gone back in
        // the ring. It writes the same actions again over themselves, so they can be read meanwhile.
        if (position.steps > capacity_ || end > lane.whole.load(std::memory_order_acquire)) {
            return false;
        }
        const Word* words = ring(index);
        auto* target = static_cast<unsigned char*>(to);
        for (std::int64_t number = position.first_step; number < end; ++number) {
            load_words<Atomic>(target, words + at(number), action_bytes_, std::memory_order_acquire);
            target += action_bytes_;
        }
        // relaxed: the acquiring loads above come before this one. A new word that they saw made its mark visible as well.
        return lane.begun.load(std::memory_order_relaxed) <= position.first_step + capacity_;
    }

    [[nodiscard]] std::size_t action_bytes() const { return action_bytes_; }

  private:
    struct alignas(cache_line) Lane {
        Atomic<std::int64_t> episode;
        Atomic<std::int64_t> first_step;
        Atomic<std::int64_t> total;  // actions so far
        Atomic<std::int64_t> whole;  // one more than the highest number that was ever written completely
        Atomic<std::int64_t> begun;  // one more than the highest number whose writing ever began
        Word hash;
    };

    [[nodiscard]] std::size_t at(std::int64_t number) const {
        return static_cast<std::size_t>(number % capacity_) * action_words_;
    }

    [[nodiscard]] Lane& lane(std::size_t index) const {
        return *std::launder(reinterpret_cast<Lane*>(memory_ + index * stride_));
    }

    [[nodiscard]] Word* ring(std::size_t index) const {
        return std::launder(reinterpret_cast<Word*>(memory_ + index * stride_ + sizeof(Lane)));
    }

    unsigned char* memory_;
    std::size_t action_bytes_;
    std::size_t action_words_;
    std::int64_t capacity_;
    std::size_t stride_;
};

}  // namespace penstock::memory
