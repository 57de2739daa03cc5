// Record: the commit record of a learner. It has two buffers of plain memory. One release store makes the new one current.
//
// The writer fills the inactive buffer in place between begin() and commit(). If it dies in between, the current buffer is
// untouched. Other processes may copy the current record, and learn whether it was overwritten meanwhile. There is one
// writer at a time. Zero-filled memory is a valid record, with nothing committed.
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

    // Offset of buffer 0 or 1 from the start of the memory.
    static constexpr std::size_t offset(std::size_t nbytes, std::size_t index) {
        return sizeof(Head) + index * round_to_line(nbytes);
    }

    Record(void* memory, std::size_t nbytes) : memory_(static_cast<unsigned char*>(memory)), nbytes_(nbytes) {}

    // Returns the index of the buffer to fill. May be called again instead of commit(): then the filling starts anew.
    std::size_t begin() {
        const std::uint64_t next = head().committed.load(std::memory_order_relaxed) + 1;  // the writer's own word
        PENSTOCK_FAULT_POINT("record.begin.before");
        // acquire: pairs with the release in copy(). If a copy did not see this mark, its loads happened before the plain
        // stores that follow. It is a read-modify-write because a store cannot acquire.
        head().begun.exchange(next, std::memory_order_acq_rel);
        PENSTOCK_FAULT_POINT("record.begin.after");
        return index_of(next);
    }

    // Makes the buffer of begin() the current one. False if begin() was not called.
    bool commit(std::int64_t number) {
        const std::uint64_t next = head().committed.load(std::memory_order_relaxed) + 1;
        if (head().begun.load(std::memory_order_relaxed) != next) {
            return false;
        }
        head().number[index_of(next)].store(number, std::memory_order_relaxed);  // relaxed: the store below releases it
        PENSTOCK_FAULT_POINT("record.commit.before");
        // release: a reader that sees this store sees the whole record.
        head().committed.store(next, std::memory_order_release);
        PENSTOCK_FAULT_POINT("record.commit.after");
        return true;
    }

    struct Current {
        std::size_t index;
        std::int64_t number;
    };

    // The current buffer and its number, or nothing before the first commit. Only for the writer and its successor.
    [[nodiscard]] std::optional<Current> current() const {
        const std::uint64_t committed = head().committed.load(std::memory_order_acquire);  // pairs with commit()
        if (committed == 0) {
            return std::nullopt;
        }
        const std::size_t index = index_of(committed);
        return Current{index, head().number[index].load(std::memory_order_relaxed)};
    }

    // Calls copy(index, const Word*) once on the current buffer and returns its number. Returns nothing if there is no
    // record, or if it was overwritten meanwhile. The caller loads the words relaxed.
    template <class Copy>
    std::optional<std::int64_t> copy(Copy&& copy_out) {
        const std::uint64_t committed = head().committed.load(std::memory_order_acquire);  // pairs with commit()
        if (committed == 0) {
            return std::nullopt;
        }
        const std::size_t index = index_of(committed);
        const std::int64_t number = head().number[index].load(std::memory_order_relaxed);
        copy_out(index, words(index));
        // release, on a read-modify-write that adds 0. The order of the word's changes decides:
        //   1. If begin() comes later, it acquires from here. So the loads above happened before the writer's stores.
        //   2. If begin() came earlier, this operation sees its mark.
        const std::uint64_t begun = head().begun.fetch_add(0, std::memory_order_release);
        // The same buffer is filled again for commit number committed + 2.
        return begun <= committed + 1 ? std::optional(number) : std::nullopt;
    }

    // Call it after the writer was killed and reaped. True if it died between begin() and commit(). Nothing has to be
    // repaired. The mark must stay, because a copy that is under way relies on it.
    [[nodiscard]] bool recover() const {
        return head().begun.load(std::memory_order_acquire) != head().committed.load(std::memory_order_acquire);
    }

    [[nodiscard]] Word* words(std::size_t index) const {
        return std::launder(reinterpret_cast<Word*>(memory_ + offset(nbytes_, index)));
    }

  private:
    struct alignas(cache_line) Head {
        Word committed;  // number of commits so far
        Word begun;      // number of the last commit whose filling began
        Atomic<std::int64_t> number[2];
    };

    static std::size_t index_of(std::uint64_t commit) { return static_cast<std::size_t>(commit % 2); }

    [[nodiscard]] Head& head() const { return *std::launder(reinterpret_cast<Head*>(memory_)); }

    unsigned char* memory_;
    std::size_t nbytes_;
};

}  // namespace penstock::memory
