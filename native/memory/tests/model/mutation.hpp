// Planted bugs: one atomic operation of a structure is made weaker or left out. Its place in the source names it.
#pragma once

#include <atomic>
#include <compare>
#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "knowledge.hpp"

namespace penstock::model {

// One atomic operation as it is written in a header.
struct Site {
    std::string file;
    std::string function;
    std::string operation;
    std::uint32_t line;
    std::uint32_t column;
    std::memory_order order;

    auto operator<=>(const Site&) const = default;

    static Site at(const std::source_location& where, const char* operation, std::memory_order order) {
        const std::string_view path = where.file_name();
        std::string_view name = where.function_name();
        name = name.substr(0, name.find('('));
        return {std::string(path.substr(path.rfind('/') + 1)), std::string(name.substr(name.rfind(':') + 1)), operation,
                where.line(), where.column(), order};
    }

    [[nodiscard]] bool is(const std::source_location& where) const {
        return where.line() == line && where.column() == column && std::string_view(where.file_name()).ends_with(file);
    }
};

struct Mutation {
    Site site;
    std::optional<std::memory_order> weaker;  // nothing: the operation is left out

    [[nodiscard]] std::string name() const {
        return site.file + " " + site.function + " " + site.operation + " " + name_of(site.order) + " -> " +
               (weaker ? name_of(*weaker) : "left out");
    }
};

// The orders that are one step weaker. If an operation needs even the weaker order, it also needs the stronger one.
inline std::vector<std::memory_order> weaker(std::memory_order order) {
    switch (order) {
        case std::memory_order_seq_cst: return {std::memory_order_acq_rel};
        case std::memory_order_acq_rel: return {std::memory_order_acquire, std::memory_order_release};
        case std::memory_order_acquire:
        case std::memory_order_release: return {std::memory_order_relaxed};
        default: return {};
    }
}

// All bugs that can be planted at this operation. Only a store can be left out: a read-modify-write returns a value.
inline std::vector<Mutation> mutations(const Site& site) {
    std::vector<Mutation> all;
    for (const std::memory_order order : weaker(site.order)) {
        all.push_back({site, order});
    }
    if (site.operation == "store") {
        all.push_back({site, std::nullopt});
    }
    return all;
}

}  // namespace penstock::model
