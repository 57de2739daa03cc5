// Slots: the lock-free part of a stream. Each slot has one word: state, owner and sequence. The word guards the slot's
// payload, which is plain memory elsewhere. This header knows no payload and rings no bell.
//
//     free --claim--> writing --push--> ready --take--> reading --release--> free
//                     writing --recover--> free         reading --recover--> ready
//
// State and owner are in one word, and every transition is one compare-and-swap. So a process may die between any two
// instructions: the words still say which slots it held. Zero-filled memory is valid, with all slots free.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "penstock/memory/fault.hpp"
#include "penstock/memory/words.hpp"

namespace penstock::memory {

enum class SlotState : std::uint64_t { free = 0, writing = 1, ready = 2, reading = 3 };

// The word: 4 bits of state, 20 of owner, 40 of sequence.
struct SlotWord {
    static constexpr std::uint64_t owners = std::uint64_t{1} << 20;
    static constexpr std::uint64_t sequences = std::uint64_t{1} << 40;

    SlotState state;
    std::uint64_t owner;
    std::uint64_t sequence;

    static constexpr SlotWord unpack(std::uint64_t word) {
        return {static_cast<SlotState>(word >> 60), (word >> 40) & (owners - 1), word & (sequences - 1)};
    }
    [[nodiscard]] constexpr std::uint64_t pack() const {
        return (static_cast<std::uint64_t>(state) << 60) | (owner << 40) | sequence;
    }
};

struct Recovered {
    std::size_t freed;     // slots writing -> free: their payload was half written and is dropped
    std::size_t returned;  // slots reading -> ready: their payload will be read again
};

template <template <class> class Atomic = std::atomic>
class Slots {
  public:
    static constexpr std::size_t required(std::size_t slots) {
        return round_to_line(slots * sizeof(Atomic<std::uint64_t>));
    }

    Slots(void* memory, std::size_t slots) : words_(static_cast<Atomic<std::uint64_t>*>(memory)), slots_(slots) {}

    // Claims a free slot for this owner, or returns nothing if it saw no free slot. Owner and sequence must fit into their
    // bits. An owner is a life of a node: its number is never used again.
    std::optional<std::size_t> claim(std::uint64_t owner, std::uint64_t sequence) {
        const std::uint64_t claimed = SlotWord{SlotState::writing, owner, sequence}.pack();
        for (std::size_t index = 0; index < slots_; ++index) {
            // relaxed: the value is only a guess; the exchange decides.
            std::uint64_t word = words_[index].load(std::memory_order_relaxed);
            if (SlotWord::unpack(word).state != SlotState::free) {
                continue;
            }
            PENSTOCK_FAULT_POINT("slots.claim.before");
            // acquire: pairs with release(). The last reader's loads come before this writer's stores.
            if (words_[index].compare_exchange_strong(word, claimed, std::memory_order_acquire,
                                                      std::memory_order_relaxed)) {
                PENSTOCK_FAULT_POINT("slots.claim.after");
                return index;
            }
        }
        return std::nullopt;
    }

    // writing -> ready. False if the slot does not belong to this owner. It may have belonged to it before: then the owner
    // was fenced, and its slots were taken back.
    bool push(std::size_t index, std::uint64_t owner) {
        PENSTOCK_FAULT_POINT("slots.push.before");
        // release: the payload's stores come before any reader's loads.
        const bool moved = move(index, SlotState::writing, owner, SlotState::ready, std::memory_order_release);
        PENSTOCK_FAULT_POINT("slots.push.after");
        return moved;
    }

    // Takes the ready slot with the smallest sequence, or returns nothing. The slots of a writer whose sequences rise come
    // first in, first out.
    std::optional<std::size_t> take(std::uint64_t owner) {
        std::optional<Found> last;
        for (;;) {
            const std::optional<Found> found = smallest_ready();
            if (!found) {
                return std::nullopt;
            }
            // Race:
            //   1. A scan passes slot 0 while it is free.
            //   2. The writer pushes sequence 1 into slot 0, then sequence 2 into slot 1.
            //   3. The scan finds sequence 2 in slot 1 and takes it for the smallest.
            // The scan has acquired sequence 2, so a second scan sees all that its writer pushed before. Therefore a choice
            // counts only if two scans in a row make it.
            if (!last || last->index != found->index || last->word != found->word) {
                last = found;
                continue;
            }
            std::uint64_t word = found->word;
            const std::uint64_t taken =
                SlotWord{SlotState::reading, owner, SlotWord::unpack(word).sequence}.pack();
            PENSTOCK_FAULT_POINT("slots.take.before");
            // acquire: pairs with push(). All exchanges in between are read-modify-writes and keep the release sequence of
            // push(). So it also pairs for a slot that recover() has made ready again.
            if (words_[found->index].compare_exchange_strong(word, taken, std::memory_order_acquire,
                                                             std::memory_order_relaxed)) {
                PENSTOCK_FAULT_POINT("slots.take.after");
                return found->index;
            }
            last.reset();
        }
    }

    // reading -> free. False if the slot does not belong to this owner.
    bool release(std::size_t index, std::uint64_t owner) {
        PENSTOCK_FAULT_POINT("slots.release.before");
        // release: this reader's loads come before the next writer's stores.
        const bool moved = move(index, SlotState::reading, owner, SlotState::free, std::memory_order_release);
        PENSTOCK_FAULT_POINT("slots.release.after");
        return moved;
    }

    // Takes back all slots of a dead owner. Call it only after the owner was killed and reaped. May be repeated.
    Recovered recover(std::uint64_t owner) {
        Recovered recovered{0, 0};
        for (std::size_t index = 0; index < slots_; ++index) {
            // acq_rel: the dead owner's accesses come before those of the slot's next owner.
            if (move(index, SlotState::writing, owner, SlotState::free, std::memory_order_acq_rel)) {
                ++recovered.freed;
            } else if (move(index, SlotState::reading, owner, SlotState::ready, std::memory_order_acq_rel)) {
                ++recovered.returned;
            }
            PENSTOCK_FAULT_POINT("slots.recover.between");
        }
        return recovered;
    }

    // Frees the slots that hold one of these sequences. This owner may be reading them, or recover() has made them ready
    // again. So a slot that a commit record names as consumed is never read twice. Sequences are unique within a stream.
    std::size_t release_consumed(std::uint64_t owner, std::span<const std::uint64_t> sequences) {
        std::size_t freed = 0;
        for (std::size_t index = 0; index < slots_; ++index) {
            std::uint64_t word = words_[index].load(std::memory_order_relaxed);
            const SlotWord slot = SlotWord::unpack(word);
            const bool ours = slot.state == SlotState::ready ||
                              (slot.state == SlotState::reading && slot.owner == owner);
            if (!ours || std::find(sequences.begin(), sequences.end(), slot.sequence) == sequences.end()) {
                continue;
            }
            PENSTOCK_FAULT_POINT("slots.release_consumed.between");
            // acq_rel: as in release(), and for slots that were ready as in take().
            if (words_[index].compare_exchange_strong(word, free_word, std::memory_order_acq_rel,
                                                      std::memory_order_relaxed)) {
                ++freed;
            }
        }
        return freed;
    }

    [[nodiscard]] std::size_t count(SlotState state) const {
        std::size_t found = 0;
        for (std::size_t index = 0; index < slots_; ++index) {
            // relaxed: a count may be out of date as soon as it is returned.
            const std::uint64_t word = words_[index].load(std::memory_order_relaxed);
            found += SlotWord::unpack(word).state == state ? 1U : 0U;
        }
        return found;
    }

    // The word of one slot. It is exact for the slot's owner, and may be out of date for any other process.
    [[nodiscard]] SlotWord word(std::size_t index) const {
        // acquire: a process may read a pushed slot without taking it. It sees the content, and all before the push.
        return SlotWord::unpack(words_[index].load(std::memory_order_acquire));
    }

    [[nodiscard]] std::size_t slots() const { return slots_; }

  private:
    struct Found {
        std::size_t index;
        std::uint64_t word;
    };

    static constexpr std::uint64_t free_word = SlotWord{SlotState::free, 0, 0}.pack();

    [[nodiscard]] std::optional<Found> smallest_ready() const {
        std::optional<Found> smallest;
        for (std::size_t index = 0; index < slots_; ++index) {
            // acquire: the second scan of take() must see all slots that were pushed before the words that this scan saw.
            const std::uint64_t word = words_[index].load(std::memory_order_acquire);
            const SlotWord slot = SlotWord::unpack(word);
            if (slot.state == SlotState::ready &&
                (!smallest || slot.sequence < SlotWord::unpack(smallest->word).sequence)) {
                smallest = Found{index, word};
            }
            PENSTOCK_FAULT_POINT("slots.take.scan");
        }
        return smallest;
    }

    bool move(std::size_t index, SlotState from, std::uint64_t owner, SlotState to, std::memory_order order) {
        // relaxed: an owner sees its own word. If another process passes a stale guess, the exchange only fails.
        std::uint64_t word = words_[index].load(std::memory_order_relaxed);
        const SlotWord slot = SlotWord::unpack(word);
        if (slot.state != from || slot.owner != owner) {
            return false;
        }
        const std::uint64_t moved = to == SlotState::free ? free_word : SlotWord{to, owner, slot.sequence}.pack();
        return words_[index].compare_exchange_strong(word, moved, order, std::memory_order_relaxed);
    }

    Atomic<std::uint64_t>* words_;
    std::size_t slots_;
};

}  // namespace penstock::memory
