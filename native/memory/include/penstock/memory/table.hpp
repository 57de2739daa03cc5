// Table: for each writer a ring of slots. The writer overwrites the slots in order; readers read them at random. Each
// writer has two words: the number of slots that it has claimed, and the number that it has written. The payload is plain
// memory elsewhere. This header knows no payload.
//
//     slot of sequence s: s % slots        readable: claimed - slots <= s < written, and first <= s where slots were restored
//
// How a reader reads, without waiting for a writer:
//   1. It reads `written`.
//   2. It copies rows of readable slots.
//   3. It asks for the oldest sequence that is still there. Copies of older sequences may be torn, so it throws them away.
//
// Writers never wait for readers. If a writer dies between claim and push, no reader sees the slot. Its successor claims
// the same sequence again, so there is nothing to recover. Zero-filled memory is a valid table, with nothing written.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include "penstock/memory/fault.hpp"
#include "penstock/memory/words.hpp"

namespace penstock::memory {

template <template <class> class Atomic = std::atomic>
class Table {
  public:
    static constexpr std::size_t required(std::size_t writers) { return writers * sizeof(Head); }

    // slots: number of slots of each writer.
    Table(void* memory, std::size_t writers, std::size_t slots)
        : memory_(static_cast<unsigned char*>(memory)), writers_(writers), slots_(slots) {}

    // Opens the slot of this sequence for writing. From here on the slot's old rows cannot be read. False if the sequence
    // is not the writer's next one. May be called again, also by a successor; the payload is then written anew.
    bool claim(std::size_t writer, std::uint64_t sequence) {
        // relaxed, here and in push(): these are the writer's own words. A successor is started after the dead writer was
        // reaped, which synchronises the two.
        if (head(writer).written.load(std::memory_order_relaxed) != sequence) {
            return false;
        }
        PENSTOCK_FAULT_POINT("table.claim.before");
        // acquire: pairs with the release in oldest(). If a reader did not see this mark, its loads happened before the
        // plain stores that follow. It is a read-modify-write because a store cannot acquire.
        // release: a compiler may not move this mark before the push of the slot before. Otherwise, after a death between
        // the two, a successor would lower the mark again.
        head(writer).claimed.exchange(sequence + 1, std::memory_order_acq_rel);
        PENSTOCK_FAULT_POINT("table.claim.after");
        return true;
    }

    // Makes the claimed slot readable. False if it was not claimed.
    bool push(std::size_t writer, std::uint64_t sequence) {
        Head& head = this->head(writer);
        if (head.written.load(std::memory_order_relaxed) != sequence ||
            head.claimed.load(std::memory_order_relaxed) != sequence + 1) {
            return false;
        }
        PENSTOCK_FAULT_POINT("table.push.before");
        // release: a reader that sees the number sees the slot's payload.
        head.written.store(sequence + 1, std::memory_order_release);
        PENSTOCK_FAULT_POINT("table.push.after");
        return true;
    }

    // Continues at a sequence, for a writer whose slots from `first` on were restored or are still there. Call it before
    // any other process reads the table. If the caller dies inside, `first` was not lowered, so a second call does the same.
    void begin(std::size_t writer, std::uint64_t sequence, std::uint64_t first) {
        // relaxed: processes that use the table are started afterwards, which synchronises.
        head(writer).first.store(first, std::memory_order_relaxed);
        PENSTOCK_FAULT_POINT("table.begin.first");
        head(writer).claimed.store(sequence, std::memory_order_relaxed);
        PENSTOCK_FAULT_POINT("table.begin.between");
        head(writer).written.store(sequence, std::memory_order_relaxed);
    }

    // The first step of a reader: all sequences below this one are whole.
    [[nodiscard]] std::uint64_t written(std::size_t writer) const {
        return head(writer).written.load(std::memory_order_acquire);  // pairs with push()
    }

    // One more than the highest sequence that was ever opened for writing.
    [[nodiscard]] std::uint64_t claimed(std::size_t writer) const {
        return head(writer).claimed.load(std::memory_order_relaxed);  // relaxed: out of date when it is returned
    }

    // The oldest sequence that can probably be read; a reader begins there. It does not tell whether a copy is whole.
    [[nodiscard]] std::uint64_t first(std::size_t writer) const {
        const std::uint64_t claimed = this->claimed(writer);
        const std::uint64_t left = claimed < slots_ ? 0 : claimed - slots_;
        const std::uint64_t begun = head(writer).first.load(std::memory_order_relaxed);  // relaxed: it only grows
        return begun < left ? left : begun;
    }

    // The last step of a reader: the oldest sequence that was not overwritten up to now. Rows of this sequence and of later
    // ones that were copied before this call are whole.
    [[nodiscard]] std::uint64_t oldest(std::size_t writer) {
        // release, on a read-modify-write that adds 0. The order of the word's changes decides:
        //   1. If claim() comes later, it acquires from here. So the copy happened before the writer's stores.
        //   2. If claim() came earlier, this operation sees its mark.
        const std::uint64_t claimed = head(writer).claimed.fetch_add(0, std::memory_order_release);
        return claimed < slots_ ? 0 : claimed - slots_;
    }

    [[nodiscard]] std::size_t writers() const { return writers_; }
    [[nodiscard]] std::size_t slots() const { return slots_; }

  private:
    struct alignas(cache_line) Head {
        Atomic<std::uint64_t> claimed;
        Atomic<std::uint64_t> written;
        Atomic<std::uint64_t> first;  // the oldest sequence that was there at the beginning, or was not forgotten
    };

    [[nodiscard]] Head& head(std::size_t writer) const {
        return *std::launder(reinterpret_cast<Head*>(memory_ + writer * sizeof(Head)));
    }

    unsigned char* memory_;
    std::size_t writers_;
    std::size_t slots_;
};

}  // namespace penstock::memory
