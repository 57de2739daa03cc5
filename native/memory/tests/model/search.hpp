// Searches the schedules of a setting for one that fails. Also plants bugs, and checks that a search finds each of them.
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

// Runs every schedule within the setting's bounds, then random ones beyond them, up to the first that fails.
Searched search(const Setting& setting, const std::optional<Mutation>& mutation);

// The test fails if any schedule fails. It prints every step of that schedule.
void holds(const Setting& setting);

// The test fails if no schedule fails, because the setting has a bug on purpose.
void fails(const Setting& setting);

// Weakens each order and leaves out each store in the header, one at a time. Each of these bugs must make a search of one
// of the settings fail. Those that `spare` names (as often as they are met) must not.
void every_operation_is_needed(const std::string& header, std::initializer_list<Setting> settings,
                               const std::multiset<std::string>& spare);

}  // namespace penstock::model
