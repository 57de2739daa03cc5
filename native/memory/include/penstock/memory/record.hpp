// Record: the commit record of a learner. Two buffers of plain memory; one release store makes the new one current.
//
// The writer fills the inactive buffer in place between begin() and commit(); a death in between leaves the current one
// untouched. Other processes may copy the current record out and learn whether it was overwritten meanwhile.
// One writer at a time. Zero-filled memory is a valid record, nothing committed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>

#include "penstock/memory/fault.hpp"
#include "penstock/memory/words.hpp"

namespace penstock::memory {

template <template <class> class Atomic = std::atomic>
class Record {
  public:
    using Word = Atomic<std::uint64_t>;

    static constexpr std::size_t required(std::size_t nbytes) { return sizeof(Head) + 2 * round_to_line(nbytes); }

    // Where buffer 0 or 1 starts, from the beginning of the memory.
    static constexpr std::size_t offset(std::size_t nbytes, std::size_t index) {
        return sizeof(Head) + index * round_to_line(nbytes);
    }

    Record(void* memory, std::size_t nbytes) : memory_(static_cast<unsigned char*>(memory)), nbytes_(nbytes) {}

    // Index of the buffer to fill. May be called again instead of commit(): the filling starts anew.
    std::size_t begin() {
        const std::uint64_t next = head().committed.load(std::memory_order_relaxed) + 1;  // the writer's own word
        PENSTOCK_FAULT_POINT("record.begin.before");
        // acquire: pairs with the release in copy(): where a copy did not see this mark, its loads happened before the
        // plain stores that follow. A read-modify-write, since a store cannot acquire.
        head().begun.exchange(next, std::memory_order_acq_rel);
        PENSTOCK_FAULT_POINT("record.begin.after");
        return index_of(next);
    }

    // Makes the buffer that begin() gave the current one. False if begin() was not called.
    bool commit(std::int64_t number) {
        const std::uint64_t next = head().committed.load(std::memory_order_relaxed) + 1;
        if (head().begun.load(std::memory_order_relaxed) != next) {
            return false;
        }
        head().number[index_of(next)].store(number, std::memory_order_relaxed);  // relaxed: the flip below carries it
        PENSTOCK_FAULT_POINT("record.commit.before");
        // release: whoever sees the flip sees the whole record.
        head().committed.store(next, std::memory_order_release);
        PENSTOCK_FAULT_POINT("record.commit.after");
        return true;
    }

    struct Current {
        std::size_t index;
        std::int64_t number;
    };

    // The current buffer and its number, or nothing before the first commit. For the writer, and for a new one.
    [[nodiscard]] std::optional<Current> current() const {
        const std::uint64_t committed = head().committed.load(std::memory_order_acquire);  // pairs with commit()
        if (committed == 0) {
            return std::nullopt;
        }
        const std::size_t index = index_of(committed);
        return Current{index, head().number[index].load(std::memory_order_relaxed)};
    }

    // Calls copy(index, const Word*) once on the current buffer; its number, or nothing if there is none or it was
    // overwritten meanwhile. Load the words relaxed.
    template <class Copy>
    std::optional<std::int64_t> copy(Copy&& copy_out) {
        const std::uint64_t committed = head().committed.load(std::memory_order_acquire);  // pairs with commit()
        if (committed == 0) {
            return std::nullopt;
        }
        const std::size_t index = index_of(committed);
        const std::int64_t number = head().number[index].load(std::memory_order_relaxed);
        copy_out(index, words(index));
        // release, on a read that writes back what it read: if begin() comes later in this word's order it acquires from
        // here, so the loads above happened before its owner's stores; if it came earlier, this sees its mark.
        const std::uint64_t begun = head().begun.fetch_add(0, std::memory_order_release);
        // The same buffer is next filled for commit + 2.
        return begun <= committed + 1 ? std::optional(number) : std::nullopt;
    }

    // After the writer was killed and reaped: true if it died between begin() and commit(). Nothing needs mending, and
    // the mark must stay: a copy that is under way relies on it.
    [[nodiscard]] bool recover() const {
        return head().begun.load(std::memory_order_acquire) != head().committed.load(std::memory_order_acquire);
    }

    [[nodiscard]] Word* words(std::size_t index) const {
        return std::launder(reinterpret_cast<Word*>(memory_ + offset(nbytes_, index)));
    }

  private:
    struct alignas(cache_line) Head {
        Word committed;  // commits so far
        Word begun;      // the commit that is or was being filled
        Atomic<std::int64_t> number[2];
    };

    static std::size_t index_of(std::uint64_t commit) { return static_cast<std::size_t>(commit % 2); }

    [[nodiscard]] Head& head() const { return *std::launder(reinterpret_cast<Head*>(memory_)); }

    unsigned char* memory_;
    std::size_t nbytes_;
};

}  // namespace penstock::memory
