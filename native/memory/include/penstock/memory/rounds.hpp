// Rounds: members meet in rounds. Each member brings a payload. Once all have brought theirs, each member reads all of
// them. Payloads are plain memory, guarded by one word. This header knows only where they lie.
//
//     asking --admit--> member --arrive--> arrived;  the last member to arrive ends the round for all
//     remove: the round no longer waits for a member that leaves or died (fence it first); this may end the round, too
//
// One compare-and-swap on one word decides who takes part in a round and when the round is over. So all members agree on
// it, even if one of them dies at any moment.
//
// Why a reader is never disturbed:
//   1. A round is over once all members have arrived.
//   2. While a member reads round n, the others may write their payloads of round n + 1. Those go into the other of two
//      buffers.
//   3. Round n + 1 is not over before the reader has arrived there too. So no member writes for round n + 2 before.
//
// The first round waits for as many members as the memory has space for.
//
// Zero-filled memory is valid: it has no members yet.
#pragma once

#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>

#include "penstock/memory/doorbell.hpp"
#include "penstock/memory/fault.hpp"
#include "penstock/memory/words.hpp"

namespace penstock::memory {

// The word: four sets of up to 12 members, whether the first round is over, 15 bits of the round's number.
struct Standing {
    static constexpr std::size_t most = 12;
    static constexpr std::uint64_t rounds = std::uint64_t{1} << 15;

    std::uint64_t members;
    std::uint64_t arrived;
    std::uint64_t last;    // the members that took part in the round before this one
    std::uint64_t asking;  // those that want to become members
    bool begun;
    std::uint64_t round;

    static constexpr std::uint64_t bit(std::size_t member) { return std::uint64_t{1} << member; }
    static constexpr std::uint64_t all(std::size_t members) { return bit(members) - 1; }

    static constexpr Standing unpack(std::uint64_t word) {
        constexpr std::uint64_t set = all(most);
        return {word & set,        (word >> most) & set,           (word >> 2 * most) & set, (word >> 3 * most) & set,
                ((word >> 4 * most) & 1) != 0, word >> (4 * most + 1)};
    }
    [[nodiscard]] constexpr std::uint64_t pack() const {
        return members | (arrived << most) | (last << 2 * most) | (asking << 3 * most) |
               (static_cast<std::uint64_t>(begun) << 4 * most) | (round << (4 * most + 1));
    }

    // Ends the round if it waits for no other member.
    [[nodiscard]] constexpr Standing settled(std::size_t expected) const {
        const std::uint64_t awaited = begun ? members : all(expected);
        if (awaited == 0 || arrived != awaited) {
            return *this;
        }
        return {members, 0, members, asking, true, (round + 1) % rounds};
    }
};

enum class Joined { waiting, founded, admitted };

template <template <class> class Atomic = std::atomic>
class Rounds {
  public:
    static constexpr std::size_t required(std::size_t members, std::size_t nbytes) {
        return offset(members, nbytes, members, 0);
    }

    // Offset of a member's payload of an even or odd round from the start of the memory.
    static constexpr std::size_t offset(std::size_t members, std::size_t nbytes, std::size_t member, std::uint64_t round) {
        return sizeof(Head) + Doorbells<Atomic>::required(members) +
               (2 * member + static_cast<std::size_t>(round % 2)) * round_to_line(nbytes);
    }

    // At most Standing::most members.
    Rounds(void* memory, std::size_t members)
        : head_(*std::launder(reinterpret_cast<Head*>(memory))),
          bells_(static_cast<unsigned char*>(memory) + sizeof(Head)),
          members_(members) {}

    // Joins the rounds:
    //   - founded: it is a member at once. The first round is not over yet, or there is no member and `anew` is true.
    //   - waiting: it has asked to become a member. The caller sleeps and calls join() again.
    //   - admitted: another member has admitted it.
    Joined join(std::size_t member, bool anew) {
        const std::uint64_t me = Standing::bit(member);
        Joined joined = Joined::waiting;
        change([&](Standing now) -> std::optional<Standing> {
            if ((now.members & me) != 0) {
                joined = Joined::admitted;
                return std::nullopt;
            }
            joined = !now.begun || (now.members == 0 && anew) ? Joined::founded : Joined::waiting;
            if (joined == Joined::founded) {
                now.members |= me;
                now.asking &= ~me;
                return now;
            }
            if ((now.asking & me) != 0) {
                return std::nullopt;
            }
            now.asking |= me;
            return now;
        });
        return joined;
    }

    // Those that ask to become members, if this member is the one to admit them: the first of all members. Otherwise none.
    // Call it only between two rounds of this member.
    [[nodiscard]] std::uint64_t asking(std::size_t member) const {
        const Standing now = standing();
        return leads(now, member) ? now.asking : 0;
    }

    // Admits all that ask. They take part in the next round of this member, at which it has not arrived yet. The data
    // that the new members need must be written before.
    std::uint64_t admit(std::size_t member) {
        std::uint64_t admitted = 0;
        change([&](Standing now) -> std::optional<Standing> {
            admitted = leads(now, member) ? now.asking : 0;
            if (admitted == 0) {
                return std::nullopt;
            }
            now.members |= admitted;
            now.asking = 0;
            return now;
        });
        ring_others(member);
        return admitted;
    }

    // Says that this member's payload of the current round is written. Returns the number of that round. Only for a member
    // that has not arrived yet.
    std::uint64_t arrive(std::size_t member) {
        std::uint64_t round = 0;
        const Standing now = change([&](Standing before) -> std::optional<Standing> {
            round = before.round;
            before.arrived |= Standing::bit(member);
            return before.settled(members_);
        });
        if (now.round != round) {
            ring_others(member);
        }
        return round;
    }

    // True once that round is over. Then the payloads of all members in `last` are whole.
    [[nodiscard]] bool over(std::uint64_t round) const { return standing().round != round; }

    // The word of this member's bell. Read it before looking whether the round is over.
    [[nodiscard]] std::uint32_t word(std::size_t member) const { return bells_.word(member); }

    // Sleeps until a member joins, leaves or ends a round after that word was read, for at most the time-out.
    void sleep(std::size_t member, std::uint32_t seen, std::chrono::nanoseconds timeout, std::chrono::nanoseconds spin) {
        bells_.wait(member, seen, timeout, spin);
    }

    // Removes a member. Call it for a member that was killed and reaped. A member may also remove itself, between two rounds
    // or while it waits to be admitted. May be repeated.
    void remove(std::size_t member) {
        const std::uint64_t others = ~Standing::bit(member);
        change([&](Standing now) -> std::optional<Standing> {
            now.members &= others;
            now.arrived &= others;
            now.asking &= others;
            return now.begun ? now.settled(members_) : now;
        });
        bells_.recover(member);
        ring_others(member);
    }

    [[nodiscard]] Standing standing() const {
        return Standing::unpack(head_.word.load(std::memory_order_acquire));  // pairs with change()
    }

  private:
    struct alignas(cache_line) Head {
        Atomic<std::uint64_t> word;
    };

    static bool leads(const Standing& now, std::size_t member) {
        return (now.members & (Standing::bit(member) | (Standing::bit(member) - 1))) == Standing::bit(member);
    }

    // Replaces the word by changed(word) and returns the new standing. If `changed` returns nothing, the word stays, and the
    // standing that `changed` was given is returned.
    template <class Change>
    Standing change(Change&& changed) {
        // acquire, here and below: a member that sees its admission also sees the data that was written for it before.
        std::uint64_t word = head_.word.load(std::memory_order_acquire);
        for (;;) {
            const Standing before = Standing::unpack(word);
            const std::optional<Standing> after = changed(before);
            if (!after) {
                return before;
            }
            PENSTOCK_FAULT_POINT("rounds.change.before");
            // release: this member's payload, and its loads of the round before, come before the next accesses of others.
            // Every change is a read-modify-write, so it passes on all that earlier changes released. It need not acquire:
            // over() acquires before payloads are read.
            if (head_.word.compare_exchange_strong(word, after->pack(), std::memory_order_release,
                                                   std::memory_order_acquire)) {
                PENSTOCK_FAULT_POINT("rounds.change.after");
                return *after;
            }
        }
    }

    void ring_others(std::size_t member) {
        for (std::size_t other = 0; other < members_; ++other) {
            if (other != member) {
                bells_.ring(other);
            }
        }
    }

    Head& head_;
    Doorbells<Atomic> bells_;
    std::size_t members_;
};

}  // namespace penstock::memory
