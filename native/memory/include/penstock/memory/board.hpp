// Board: the latest value wins. It has several buffers and a count. A reader never waits for the writer and never sees a
// torn record. There is one writer at a time; the board does not decide which process that is.
//
// Publication n (from 1) goes into buffer n % buffers. `latest` is the number of the last complete publication.
//
// A reader has to copy again only if the writer publishes buffers - 1 times during the copy.
//
// Stamps count publications, not versions. A version may be published twice, by a learner that repeats an update. A stamp
// is never used twice.
//
// A checksum of the words, the version and the number of the publication stands beside the stamp. The protocol does not
// need it. A wrong checksum shows that another program wrote into the memory, or that the protocol is broken.
//
// Zero-filled memory is a valid board, with nothing published.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include "penstock/memory/checksum.hpp"
#include "penstock/memory/fault.hpp"
#include "penstock/memory/words.hpp"

namespace penstock::memory {

template <template <class> class Atomic = std::atomic>
class Board {
  public:
    using Word = Atomic<std::uint64_t>;
    static constexpr std::int64_t nothing = -1;

    // The result of reading the board.
    struct Reading {
        std::int64_t version;  // or `nothing`
        bool whole = true;     // false: the words are not those that were published; do not use the copy

        constexpr Reading(std::int64_t of, bool is_whole = true) : version(of), whole(is_whole) {}
        friend constexpr bool operator==(const Reading&, const Reading&) = default;
    };

    // A record while it is read. Each word is read once, in ascending order.
    class Source {
      public:
        // Copies nbytes from word `first` on. `first` must be behind all words that were copied before.
        void load(std::size_t first, void* to, std::size_t nbytes) {
            pass(first);
            // acquire: a reader that sees a word of a later record sees that record's open stamp too.
            load_words<Atomic>(to, words_ + first, nbytes, std::memory_order_acquire, SumInto{checksum_, first});
            next_ = std::max(next_, first + words_for(nbytes));  // an empty array shares its place with another array
        }

      private:
        friend class Board;
        explicit Source(const Word* words) : words_(words) {}

        // Reads on to word `end`. Words that the caller does not copy belong to the checksum as well.
        void pass(std::size_t end) {
            RunningSums<std::uint64_t> sums;
            const std::size_t from = next_;
            for (; next_ < end; ++next_) {
                sums.add(words_[next_].load(std::memory_order_acquire));  // as in load()
            }
            SumInto{checksum_, from}.add(sums, 0, next_ - from);
        }

        const Word* words_;
        std::size_t next_ = 0;
        Checksum checksum_;
    };

    static constexpr std::size_t required(std::size_t words, std::size_t buffers) {
        return sizeof(Head) + buffers * (sizeof(Buffer) + round_to_line(words * sizeof(Word)));
    }

    // words: length of one record; buffers: 2 or more.
    Board(void* memory, std::size_t words, std::size_t buffers)
        : memory_(static_cast<unsigned char*>(memory)),
          words_(words),
          stride_(sizeof(Buffer) + round_to_line(words * sizeof(Word))),
          buffers_(buffers) {}

    // Opens the next buffer for writing.
    void begin() {
        const std::uint64_t next = head().latest.load(std::memory_order_relaxed) + 1;  // relaxed: the writer's own word
        // release: a compiler may not move this store before the last store of finish(), the number of the publication.
        // Otherwise a death between the two would leave the latest buffer marked as open, and readers would report damage.
        // Readers need no other order here: each payload word is stored with release, so a reader that sees one of them
        // sees this stamp too.
        buffer(next).stamp.store(2 * next + 1, std::memory_order_release);
        stored_ = {};
        PENSTOCK_FAULT_POINT("board.begin.after");
    }

    // Copies nbytes into the open buffer from word `first` on. No word is stored twice. Words that are never stored stay 0.
    void store(std::size_t first, const void* from, std::size_t nbytes) {
        Word* payload = words(head().latest.load(std::memory_order_relaxed) + 1);
        store_words<Atomic>(payload + first, from, nbytes, std::memory_order_release, SumInto{stored_, first});
        PENSTOCK_FAULT_POINT("board.store.after");
    }

    // Makes the open buffer the latest value. Only the writer that called begin() may call it.
    void finish(std::int64_t version) {
        const std::uint64_t next = head().latest.load(std::memory_order_relaxed) + 1;
        Buffer& written = buffer(next);
        // release: as for a payload word.
        written.version.store(version, std::memory_order_release);
        PENSTOCK_FAULT_POINT("board.finish.version");
        // release: as for a payload word.
        written.checksum.store(checksum(stored_, next, version), std::memory_order_release);
        PENSTOCK_FAULT_POINT("board.finish.checksum");
        // release: a reader that sees the complete stamp sees the whole record.
        written.stamp.store(2 * next, std::memory_order_release);
        PENSTOCK_FAULT_POINT("board.finish.stamp");
        // release: a reader that sees the number sees its stamp and its record.
        head().latest.store(next, std::memory_order_release);
        PENSTOCK_FAULT_POINT("board.finish.latest");
    }

    // Calls copy(Source&) on the latest record, and again if the record was overwritten meanwhile. Returns the version;
    // before the first publication it returns `nothing` without a call. The checksum covers the whole record, even if copy
    // reads only a part.
    template <class Copy>
    [[nodiscard]] Reading read(Copy&& copy) const {
        return look([&](std::uint64_t number, std::int64_t version) {
            Source source(words(number));
            copy(source);
            source.pass(words_);
            // acquire: as for a payload word.
            const std::uint64_t published = buffer(number).checksum.load(std::memory_order_acquire);
            return published == checksum(source.checksum_, number, version);
        });
    }

    // The version that read() would return. The checksum is not looked at.
    [[nodiscard]] Reading version() const {
        return look([](std::uint64_t, std::int64_t) { return true; });
    }

    // The number of the latest publication, or 0 before the first. A version may be published twice; a number never is.
    [[nodiscard]] std::uint64_t publication() const {
        std::uint64_t latest = 0;
        (void)look([&](std::uint64_t number, std::int64_t) {
            latest = number;
            return true;
        });
        return latest;
    }

    // Call it after the writer was killed and reaped. True if the writer died in the middle of a publication. That
    // publication was never the latest; the next writer starts it anew. The latest record does not change.
    bool recover() {
        Buffer& open = buffer(head().latest.load(std::memory_order_acquire) + 1);
        const std::uint64_t stamp = open.stamp.load(std::memory_order_relaxed);
        const std::uint64_t next = head().latest.load(std::memory_order_relaxed) + 1;
        if (stamp != 2 * next && stamp != 2 * next + 1) {
            return false;
        }
        // release: a reader that still copies the earlier record of this buffer learns that there is a later one.
        open.stamp.store(0, std::memory_order_release);
        return true;
    }

  private:
    struct alignas(cache_line) Head {
        Word latest;
    };
    struct alignas(cache_line) Buffer {
        Word stamp;  // 2 n: the buffer holds publication n; 2 n + 1: publication n is being written
        Atomic<std::int64_t> version;
        Word checksum;
    };

    static std::uint64_t checksum(const Checksum& payload, std::uint64_t number, std::int64_t version) {
        return payload.value(number, static_cast<std::uint64_t>(version));
    }

    // Calls whole(number, version) on the latest publication, and again each time that a later one has overtaken it.
    template <class Whole>
    Reading look(Whole&& whole) const {
        std::uint64_t number = head().latest.load(std::memory_order_acquire);  // pairs with finish()
        while (number != 0) {
            const Buffer& latest = buffer(number);
            const std::int64_t version = latest.version.load(std::memory_order_acquire);  // as for a payload word
            const bool is_whole = whole(number, version);
            // acquire: the loads above come before this one.
            //   1. If one of them saw a new word, this load sees the new stamp.
            //   2. If the stamp is new, the load of `latest` below sees a later number, which the writer stored before it.
            //   3. If `latest` is not later, then no writer stored this stamp: the memory is damaged.
            const bool overtaken = latest.stamp.load(std::memory_order_acquire) != 2 * number;
            const std::uint64_t now = overtaken ? head().latest.load(std::memory_order_acquire) : number;  // as above
            if (now <= number) {
                return {version, is_whole && !overtaken};
            }
            number = now;
        }
        return nothing;
    }

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
    std::size_t words_;
    std::size_t stride_;
    std::size_t buffers_;
    Checksum stored_;  // of the open buffer; only its writer's own
};

}  // namespace penstock::memory
