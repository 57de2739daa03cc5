// Simulated shared memory, as weak as the C++ orders that the code states.
//
// Each place keeps the history of all its stores. A store is in the history at once, but other processes may see it late: a
// load may return any store that is not older than the stores that its process has already seen, or has learnt of by
// acquiring. So relaxed stores to two places may be seen in either order, and a load may pass a store. A read-modify-write
// takes the newest value and continues the release sequence. A seq_cst load returns nothing older than the last seq_cst
// store.
//
// The simulation leaves out two things, and reports scenarios that need them:
//   - A store is never put before an earlier one in the history. A process must know the value that it overwrites;
//     otherwise the schedule fails.
//   - No load returns a value from the future. Where that matters, plain memory or a rule of the scenario checks that the
//     load happened before the store.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../check.hpp"
#include "choices.hpp"
#include "knowledge.hpp"

namespace penstock::model {

class Places {
  public:
    struct Stored {
        std::uint64_t value;
        Knowledge released;     // the knowledge that an acquiring load gets
        std::uint8_t process;   // the process that stored it
        bool seen_by_others;
    };

    // Begins a schedule on zero-filled memory.
    void reset(const unsigned char* memory, std::size_t nbytes, Choices& choices, unsigned& stale, unsigned& together) {
        memory_ = memory;
        index_.assign(nbytes / granule, 0);
        count_ = 0;
        choices_ = &choices;
        stale_left_ = &stale;
        together_left_ = &together;
        stores_ = 0;
        for (std::size_t process = 0; process < max_processes; ++process) {
            knowledge_[process] = {};
            knowledge_[process].clock[process] = 1;
            tail_[process].clear();
        }
    }

    // The place of an atomic word; nothing is stored in the word itself.
    std::size_t place(const void* word) {
        const auto offset = static_cast<std::size_t>(static_cast<const unsigned char*>(word) - memory_);
        std::uint8_t& index = index_[offset / granule];
        if (index == 0) {
            Place& fresh = places_.at(count_);
            fresh.history.assign(1, Stored{0, {}, max_processes - 1, true});
            fresh.last_seq_cst = 0;
            index = static_cast<std::uint8_t>(++count_);
        }
        return index - 1U;
    }

    std::uint64_t load(std::size_t process, std::size_t place, std::memory_order order) {
        return read(process, place, order, chosen(process, place, order));
    }

    // False if the process did not know the value that it overwrites.
    bool store(std::size_t process, std::size_t place, std::uint64_t value, std::memory_order order) {
        const bool known = knowledge_[process].seen[place] == newest(place);
        write(process, place, value, order, {});
        tail_[process].push_back({place, newest(place)});
        return known;
    }

    template <class Change>
    std::uint64_t change(std::size_t process, std::size_t place, std::memory_order order, Change change) {
        const std::uint64_t before = read(process, place, order, newest(place));
        write(process, place, change(before), order, places_[place].history.back().released);
        return before;
    }

    // Like compare_exchange_strong: succeeds on the newest value, and fails on any other value that a load may return.
    bool exchange_if(std::size_t process, std::size_t place, std::uint64_t& expected, std::uint64_t desired,
                     std::memory_order success, std::memory_order failure) {
        std::size_t at = newest(place);
        if (places_[place].history[at].value == expected) {
            at = chosen(process, place, failure, &expected);
            if (at == newest(place)) {
                change(process, place, success, [desired](std::uint64_t) { return desired; });
                return true;
            }
        } else {
            at = chosen(process, place, failure, &expected);
        }
        expected = read(process, place, failure, at);
        return false;
    }

    // Stores become visible in finite time. So a process that waits sees all of them, though it acquires nothing.
    void catch_up(std::size_t process) {
        for (std::size_t place = 0; place < count_; ++place) {
            knowledge_[process].seen[place] = static_cast<std::uint8_t>(newest(place));
        }
    }

    // The process is killed and reaped:
    //   1. All stores that its processor had executed are in memory. The process that reaped it knows of them, and the next
    //      life starts with that knowledge.
    //   2. A compiler may have reordered stores that do not release. So stores that no releasing operation followed may be
    //      missing, unless another process saw them. (Compilers move no read-modify-write.)
    void die(std::size_t process) {
        auto& tail = tail_[process];
        // The last store of all stays: without it, the process would have died one operation earlier.
        for (std::size_t i = tail.size(); i-- > 1;) {
            const auto [place, at] = tail[i - 1];
            std::vector<Stored>& history = places_[place].history;
            if (at == newest(place) && !history.back().seen_by_others && choices_->pick(Question::who_dies, 2) == 1) {
                history.pop_back();
                forget(place);
            }
        }
        tail.clear();
        ++knowledge_[process].clock[process];
    }

    [[nodiscard]] Knowledge& knowledge(std::size_t process) { return knowledge_[process]; }
    [[nodiscard]] std::uint64_t newest_value(std::size_t place) const { return places_[place].history.back().value; }
    [[nodiscard]] std::uint64_t stores() const { return stores_; }

  private:
    static constexpr std::size_t granule = 4;

    struct Loose {
        std::size_t place;
        std::size_t at;
    };
    struct Place {
        std::vector<Stored> history;
        std::size_t last_seq_cst;
    };

    [[nodiscard]] std::size_t newest(std::size_t place) const { return places_[place].history.size() - 1; }

    // The last store of this place has never happened after all. A process that waited may have taken it for seen (see
    // catch_up), and what it released since then says so.
    void forget(std::size_t place) {
        const auto last = static_cast<std::uint8_t>(newest(place));
        for (Knowledge& knowledge : knowledge_) {
            knowledge.seen[place] = std::min(knowledge.seen[place], last);
        }
        for (std::size_t other = 0; other < count_; ++other) {
            for (Stored& stored : places_[other].history) {
                stored.released.seen[place] = std::min(stored.released.seen[place], last);
            }
        }
    }

    // The store that a load returns. It is none of `other_than`.
    std::size_t chosen(std::size_t process, std::size_t place, std::memory_order order,
                       const std::uint64_t* other_than = nullptr) {
        std::size_t oldest = knowledge_[process].seen[place];
        if (order == std::memory_order_seq_cst) {
            oldest = std::max(oldest, places_[place].last_seq_cst);
        }
        const std::size_t last = newest(place);
        if (oldest == last || *stale_left_ == 0 || *together_left_ == 0) {
            return last;
        }
        std::array<std::size_t, 256> candidates;
        std::size_t count = 0;
        candidates[count++] = last;
        for (std::size_t at = last; at-- > oldest;) {
            if (other_than == nullptr || places_[place].history[at].value != *other_than) {
                candidates[count++] = at;
            }
        }
        const std::size_t picked = choices_->pick(Question::which_value, count);
        const unsigned old = picked == 0 ? 0 : 1;
        *stale_left_ -= old;
        *together_left_ -= old;
        return candidates[picked];
    }

    std::uint64_t read(std::size_t process, std::size_t place, std::memory_order order, std::size_t at) {
        Stored& stored = places_[place].history[at];
        knowledge_[process].seen[place] = static_cast<std::uint8_t>(at);
        if (acquires(order)) {
            knowledge_[process].join(stored.released);
        }
        stored.seen_by_others |= stored.process != process;
        return stored.value;
    }

    void write(std::size_t process, std::size_t place, std::uint64_t value, std::memory_order order,
               Knowledge carried) {
        Place& at = places_[place];
        Knowledge& own = knowledge_[process];
        CHECK(at.history.size() < 255);  // else the scenario is too long
        ++stores_;
        own.seen[place] = static_cast<std::uint8_t>(at.history.size());
        if (order == std::memory_order_seq_cst) {
            at.last_seq_cst = at.history.size();
        }
        if (releases(order)) {
            carried.join(own);
            ++own.clock[process];
            tail_[process].clear();
        }
        at.history.push_back({value, carried, static_cast<std::uint8_t>(process), false});
    }

    const unsigned char* memory_ = nullptr;
    std::vector<std::uint8_t> index_;  // place + 1 of each granule of the memory
    std::array<Place, max_places> places_;
    std::size_t count_ = 0;
    std::array<Knowledge, max_processes> knowledge_;
    std::array<std::vector<Loose>, max_processes> tail_;  // stores that no releasing operation followed
    Choices* choices_ = nullptr;
    unsigned* stale_left_ = nullptr;     // budgets of the schedule
    unsigned* together_left_ = nullptr;
    std::uint64_t stores_ = 0;
};

}  // namespace penstock::model
