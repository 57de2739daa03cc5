// Simulated types for structures and scenarios: an atomic word, a cell of plain memory, a futex.
#pragma once

#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <source_location>

#include "explorer.hpp"

namespace penstock::model {

// Takes the place of std::atomic in every structure. Zero-filled memory is valid. It is as large as T, so the layout is the
// real one. Places keeps its values.
template <class T>
class SimAtomic {
  public:
    using Order = std::memory_order;
    using Where = std::source_location;

    [[nodiscard]] T load(Order order = Order::seq_cst, Where where = Where::current()) const {
        const std::size_t place = begin("load", order, where);
        return end("read", place, value(places().load(process(), place, order)), order);
    }

    void store(T desired, Order order = Order::seq_cst, Where where = Where::current()) {
        bool left_out = false;
        const std::size_t place = explorer().before(this, "store", where, order, left_out);
        if (!left_out && !places().store(process(), place, bits(desired), order)) {
            explorer().violate("a store over a value that its process does not know");
        }
        end(left_out ? "left out" : "stored", place, desired, order);
    }

    T exchange(T desired, Order order = Order::seq_cst, Where where = Where::current()) {
        return change("exchange", order, where, [desired](T) { return desired; });
    }
    T fetch_add(T amount, Order order = Order::seq_cst, Where where = Where::current()) {
        return change("fetch_add", order, where, [amount](T before) { return static_cast<T>(before + amount); });
    }
    T fetch_sub(T amount, Order order = Order::seq_cst, Where where = Where::current()) {
        return change("fetch_sub", order, where, [amount](T before) { return static_cast<T>(before - amount); });
    }

    bool compare_exchange_strong(T& expected, T desired, Order success, Order failure, Where where = Where::current()) {
        const std::size_t place = begin("compare_exchange", success, where);
        std::uint64_t found = bits(expected);
        const bool exchanged = places().exchange_if(process(), place, found, bits(desired), success, failure);
        expected = value(found);
        end(exchanged ? "exchanged for" : "not exchanged, found", place, exchanged ? desired : expected, success);
        return exchanged;
    }

  private:
    static std::uint64_t bits(T value) { return static_cast<std::uint64_t>(value); }
    static T value(std::uint64_t bits) { return static_cast<T>(bits); }
    static Places& places() { return explorer().places(); }
    static std::size_t process() { return explorer().process(); }

    std::size_t begin(const char* operation, Order& order, const Where& where) const {
        bool left_out = false;
        return explorer().before(this, operation, where, order, left_out);
    }

    static T end(const char* text, std::size_t place, T value, Order order) {
        explorer().after(text, place, bits(value), order);
        return value;
    }

    template <class Change>
    T change(const char* operation, Order order, const Where& where, Change changed) {
        const std::size_t place = begin(operation, order, where);
        const auto in_bits = [changed](std::uint64_t old) { return bits(changed(value(old))); };
        const std::uint64_t before = places().change(process(), place, order, in_bits);
        return end(operation, place, value(before), order);
    }

    T zero_;
};

// A cell of plain memory, such as the payload of a slot. No access may race with a store of another process. A process may
// die before a store into it. It is not interrupted there: without a race, no process can tell when the store happened.
class Plain {
  public:
    void store(std::uint64_t value) {
        explorer().point_of_death();
        const std::size_t process = explorer().process();
        const Knowledge& known = explorer().places().knowledge(process);
        check_written_before(known);
        for (std::size_t reader = 0; reader < max_processes; ++reader) {
            if (read_at_[reader] > known.clock[reader]) {
                explorer().violate("plain memory is written while it is read");
            }
        }
        value_ = value;
        written_by_ = process;
        written_at_ = known.clock[process];
    }

    std::uint64_t load() {
        const std::size_t process = explorer().process();
        const Knowledge& known = explorer().places().knowledge(process);
        check_written_before(known);
        read_at_[process] = known.clock[process];
        return value_;
    }

  private:
    void check_written_before(const Knowledge& known) const {
        if (written_at_ > known.clock[written_by_]) {
            explorer().violate("plain memory is used before it was written whole");
        }
    }

    std::uint64_t value_ = 0;
    std::size_t written_by_ = 0;
    std::uint16_t written_at_ = 0;
    std::array<std::uint16_t, max_processes> read_at_{};
};

// The doorbell finds these functions in place of the system calls, because they are in the namespace of SimAtomic. Only a
// wake-up ends a sleep here. A lost wake-up shows as a sleep that never ends.
inline void sleep_on(const SimAtomic<std::uint32_t>* word, std::uint32_t seen, std::chrono::nanoseconds) {
    explorer().sleep_while(word, seen);
}

inline void wake_all(const SimAtomic<std::uint32_t>* word) { explorer().wake(word); }

}  // namespace penstock::model
