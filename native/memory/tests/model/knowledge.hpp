// The knowledge of a simulated process about the others: the stores that it must see, and how far it has synchronised.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace penstock::model {

inline constexpr std::size_t max_places = 48;   // atomic words in shared memory
inline constexpr std::size_t max_processes = 5;  // the last one stands for code outside the exploration

struct Knowledge {
    std::array<std::uint8_t, max_places> seen{};       // oldest store of each place that a load may still return
    std::array<std::uint16_t, max_processes> clock{};  // up to where each process's accesses happened before

    void join(const Knowledge& other) {
        for (std::size_t place = 0; place < max_places; ++place) {
            seen[place] = std::max(seen[place], other.seen[place]);
        }
        for (std::size_t process = 0; process < max_processes; ++process) {
            clock[process] = std::max(clock[process], other.clock[process]);
        }
    }
};

constexpr bool acquires(std::memory_order order) {
    return order == std::memory_order_acquire || order == std::memory_order_acq_rel ||
           order == std::memory_order_seq_cst;
}

constexpr bool releases(std::memory_order order) {
    return order == std::memory_order_release || order == std::memory_order_acq_rel ||
           order == std::memory_order_seq_cst;
}

constexpr const char* name_of(std::memory_order order) {
    switch (order) {
        case std::memory_order_relaxed: return "relaxed";
        case std::memory_order_acquire: return "acquire";
        case std::memory_order_release: return "release";
        case std::memory_order_acq_rel: return "acq_rel";
        default: return "seq_cst";
    }
}

}  // namespace penstock::model
