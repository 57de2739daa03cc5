// Searches the schedules of a setting for one that breaks it; and plants bugs, each of which a search must find.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "explorer.hpp"

namespace penstock::model {

struct Searched {
    std::uint64_t schedules;
    std::optional<Violation> violation;
};

// Every schedule within the setting's bounds, then some by chance beyond them, up to the first that fails.
Searched search(const Setting& setting, const std::optional<Mutation>& mutation);

// The test fails, with every step of the schedule, if any fails.
void holds(const Setting& setting);

// The test fails if no schedule fails: the setting has a bug on purpose.
void fails(const Setting& setting);

// Weakens each order and leaves out each store in the header, one at a time. Each must make a search of one of the
// settings fail, but for those that are named in `spare` (as often as they are met), which must not.
void every_operation_is_needed(const std::string& header, std::initializer_list<Setting> settings,
                               const std::multiset<std::string>& spare);

}  // namespace penstock::model
