// Table: for each writer a ring of slots that is overwritten in order, and read at random. Two words a writer count the
// slots that it has claimed and written; the payload is plain memory elsewhere. This header knows no payload.
//
//     slot of sequence s: s % slots        readable: claimed - slots <= s < written, and first <= s where slots were restored
//
// A reader looks at `written`, copies, and then asks for the oldest sequence that is still there: what it has copied of
// an older one may be torn, and is thrown away. It never waits for a writer, nor a writer for it. A writer that dies
// between claim and push has written what nobody sees; its successor claims the same sequence again, so there is nothing
// to recover. Zero-filled memory is a valid table, nothing written.
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

    // slots: of each writer.
    Table(void* memory, std::size_t writers, std::size_t slots)
        : memory_(static_cast<unsigned char*>(memory)), writers_(writers), slots_(slots) {}

    // Opens the slot of this sequence for writing: from here on, what stood in it cannot be read. False if the sequence is
    // not the writer's next one. May be called again, also by a successor, which then writes the payload anew.
    bool claim(std::size_t writer, std::uint64_t sequence) {
        // relaxed, here and in push(): the writer's own words; who follows a dead one has synchronised by reaping it.
        if (head(writer).written.load(std::memory_order_relaxed) != sequence) {
            return false;
        }
        PENSTOCK_FAULT_POINT("table.claim.before");
        // acquire: pairs with the release in oldest(): where a reader did not see this mark, its loads happened before
        // the plain stores that follow. A read-modify-write, since a store cannot acquire. release: a compiler may not
        // move it before the push of the slot before; after a death in between, a successor would lower the mark again.
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
        // release: whoever sees the number sees the slot's payload.
        head.written.store(sequence + 1, std::memory_order_release);
        PENSTOCK_FAULT_POINT("table.push.after");
        return true;
    }

    // Continues at a sequence, for a writer whose slots from `first` on were restored, or are still there. Before anybody
    // else looks at the table. Who dies here in between has lowered no `first`, so doing it again finds out the same.
    void begin(std::size_t writer, std::uint64_t sequence, std::uint64_t first) {
        // relaxed: whoever is started afterwards has synchronised.
        head(writer).first.store(first, std::memory_order_relaxed);
        PENSTOCK_FAULT_POINT("table.begin.first");
        head(writer).claimed.store(sequence, std::memory_order_relaxed);
        PENSTOCK_FAULT_POINT("table.begin.between");
        head(writer).written.store(sequence, std::memory_order_relaxed);
    }

    // All sequences below are whole. A reader's first look.
    [[nodiscard]] std::uint64_t written(std::size_t writer) const {
        return head(writer).written.load(std::memory_order_acquire);  // pairs with push()
    }

    // One more than the last sequence that was ever opened for writing.
    [[nodiscard]] std::uint64_t claimed(std::size_t writer) const {
        return head(writer).claimed.load(std::memory_order_relaxed);  // relaxed: out of date when it is returned
    }

    // The oldest sequence that can be read, as far as is known: where a reader begins to look. Of what it copies before or
    // after, this says nothing.
    [[nodiscard]] std::uint64_t first(std::size_t writer) const {
        const std::uint64_t claimed = this->claimed(writer);
        const std::uint64_t left = claimed < slots_ ? 0 : claimed - slots_;
        const std::uint64_t begun = head(writer).first.load(std::memory_order_relaxed);  // relaxed: set by begin() alone
        return begun < left ? left : begun;
    }

    // The oldest sequence that was not overwritten up to now. A reader's last look: what it copied before, from this
    // sequence on, is whole.
    [[nodiscard]] std::uint64_t oldest(std::size_t writer) {
        // release, on a read that writes back what it read: if claim() comes later in this word's order it acquires from
        // here, so the copy happened before its owner's stores; if it came earlier, this sees its mark.
        const std::uint64_t claimed = head(writer).claimed.fetch_add(0, std::memory_order_release);
        return claimed < slots_ ? 0 : claimed - slots_;
    }

    [[nodiscard]] std::size_t writers() const { return writers_; }
    [[nodiscard]] std::size_t slots() const { return slots_; }

  private:
    struct alignas(cache_line) Head {
        Atomic<std::uint64_t> claimed;
        Atomic<std::uint64_t> written;
        Atomic<std::uint64_t> first;  // what is older was not there when the writer began
    };

    [[nodiscard]] Head& head(std::size_t writer) const {
        return *std::launder(reinterpret_cast<Head*>(memory_ + writer * sizeof(Head)));
    }

    unsigned char* memory_;
    std::size_t writers_;
    std::size_t slots_;
};

}  // namespace penstock::memory
