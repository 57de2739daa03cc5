// Board: the latest value wins. Several buffers and a count: a reader never waits for the writer and never sees a torn
// record. One writer at a time; who that is, is decided outside.
//
// Publication n (from 1) goes into buffer n % buffers; `latest` names the last complete one. A reader is disturbed only if
// the writer publishes buffers - 1 times while it copies; then it copies again. Stamps count publications, not versions,
// because a version may be published twice (a learner that redoes an update): a stamp never comes back.
// Zero-filled memory is a valid board, nothing published.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include "penstock/memory/fault.hpp"
#include "penstock/memory/words.hpp"

namespace penstock::memory {

template <template <class> class Atomic = std::atomic>
class Board {
  public:
    using Word = Atomic<std::uint64_t>;
    static constexpr std::int64_t nothing = -1;

    static constexpr std::size_t required(std::size_t words, std::size_t buffers) {
        return sizeof(Head) + buffers * (sizeof(Buffer) + round_to_line(words * sizeof(Word)));
    }

    // words: length of one record; buffers: 2 or more.
    Board(void* memory, std::size_t words, std::size_t buffers)
        : memory_(static_cast<unsigned char*>(memory)),
          stride_(sizeof(Buffer) + round_to_line(words * sizeof(Word))),
          buffers_(buffers) {}

    // Opens the next buffer for writing.
    void begin() {
        const std::uint64_t next = head().latest.load(std::memory_order_relaxed) + 1;  // relaxed: the writer's own word
        // release: a compiler may not move it before the number of the publication that finish() stored last. A death in
        // between would leave the latest buffer marked as open, and its readers waiting for the next writer. Readers need
        // no order here: each payload word is stored with release, so whoever sees one of them sees this stamp too.
        buffer(next).stamp.store(2 * next + 1, std::memory_order_release);
        PENSTOCK_FAULT_POINT("board.begin.after");
    }

    // Copies nbytes into the open buffer from word `first` on.
    void store(std::size_t first, const void* from, std::size_t nbytes) {
        Word* payload = words(head().latest.load(std::memory_order_relaxed) + 1);
        store_words<Atomic>(payload + first, from, nbytes, std::memory_order_release);
        PENSTOCK_FAULT_POINT("board.store.after");
    }

    // Makes the open buffer the latest value.
    void finish(std::int64_t version) {
        const std::uint64_t next = head().latest.load(std::memory_order_relaxed) + 1;
        Buffer& written = buffer(next);
        // release: as a payload word.
        written.version.store(version, std::memory_order_release);
        PENSTOCK_FAULT_POINT("board.finish.version");
        // release: whoever sees the whole stamp sees the whole record.
        written.stamp.store(2 * next, std::memory_order_release);
        PENSTOCK_FAULT_POINT("board.finish.stamp");
        // release: whoever sees the number sees its stamp and record.
        head().latest.store(next, std::memory_order_release);
        PENSTOCK_FAULT_POINT("board.finish.latest");
    }

    // Calls copy(const Word*) on the latest record, again if it was overwritten meanwhile; returns its version, or
    // `nothing` (without a call) before the first publication.
    template <class Copy>
    std::int64_t read(Copy&& copy) const {
        for (;;) {
            const std::uint64_t number = head().latest.load(std::memory_order_acquire);  // pairs with finish()
            if (number == 0) {
                return nothing;
            }
            const Buffer& latest = buffer(number);
            const std::int64_t version = latest.version.load(std::memory_order_acquire);  // as a payload word
            copy(words(number));
            // relaxed: the copy's acquiring loads come before it, and any new word brought its stamp along.
            if (latest.stamp.load(std::memory_order_relaxed) == 2 * number) {
                return version;
            }
        }
    }

    [[nodiscard]] std::int64_t version() const {
        return read([](const Word*) {});
    }

    // After the writer was killed and reaped: true if it died in the middle of a publication, which never was the latest
    // and which the next writer starts anew. Nothing that a reader looks at changes.
    bool recover() {
        Buffer& open = buffer(head().latest.load(std::memory_order_acquire) + 1);
        const std::uint64_t stamp = open.stamp.load(std::memory_order_relaxed);
        const std::uint64_t next = head().latest.load(std::memory_order_relaxed) + 1;
        if (stamp != 2 * next && stamp != 2 * next + 1) {
            return false;
        }
        // relaxed: no reader looks at a buffer that is not the latest.
        open.stamp.store(0, std::memory_order_relaxed);
        return true;
    }

  private:
    struct alignas(cache_line) Head {
        Word latest;
    };
    struct alignas(cache_line) Buffer {
        Word stamp;  // 2 n: holds publication n; 2 n + 1: n is being written
        Atomic<std::int64_t> version;
    };

    [[nodiscard]] Head& head() const { return *std::launder(reinterpret_cast<Head*>(memory_)); }

    [[nodiscard]] unsigned char* place(std::uint64_t number) const {
        return memory_ + sizeof(Head) + static_cast<std::size_t>(number % buffers_) * stride_;
    }

    [[nodiscard]] Buffer& buffer(std::uint64_t number) const {
        return *std::launder(reinterpret_cast<Buffer*>(place(number)));
    }

    [[nodiscard]] Word* words(std::uint64_t number) const {
        return std::launder(reinterpret_cast<Word*>(place(number) + sizeof(Buffer)));
    }

    unsigned char* memory_;
    std::size_t stride_;
    std::size_t buffers_;
};

}  // namespace penstock::memory
