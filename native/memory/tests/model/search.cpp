#include "search.hpp"

#include <cstdio>
#include <cstdlib>

namespace penstock::model {

namespace {

// The long form of the search: one preemption and one old value more, and 100 times as many random schedules.
bool long_form() {
    const char* form = std::getenv("PENSTOCK_MODEL");
    return form != nullptr && std::string(form) == "long";
}

Bounds exhaustive(const Setting& setting) {
    const unsigned more = long_form() ? 1 : 0;
    const Bounds& bounds = setting.bounds;
    return {bounds.preemptions + more, bounds.stale + more, bounds.deaths, bounds.together + more};
}

constexpr Bounds by_chance{1000, 1000, 2, 2000};

std::uint64_t chances() { return long_form() ? 2'000'000 : 20'000; }

std::optional<Violation> violation(Explorer& explorer, const Choices& choices, const Bounds& bounds, std::string text) {
    Violation found{std::move(text), choices.schedule(), {}};
    Replay replay(found.schedule);
    explorer.trace = &found.steps;
    const std::optional<std::string> again = explorer.run(replay, bounds);
    explorer.trace = nullptr;
    CHECK(again == found.text);  // the schedule alone determines a run
    return found;
}

std::optional<Violation> explore(Explorer& explorer, Choices& choices, const Bounds& bounds, std::uint64_t& schedules) {
    do {
        ++schedules;
        if (auto text = explorer.run(choices, bounds)) {
            return violation(explorer, choices, bounds, std::move(*text));
        }
    } while (choices.next());
    return std::nullopt;
}

std::set<Site> sites_of(const Setting& setting, const std::string& header) {
    Explorer explorer(setting);
    std::set<Site> met;
    explorer.sites = &met;
    Chance choices(1, 500);
    do {
        explorer.run(choices, by_chance);
    } while (choices.next());
    std::erase_if(met, [&](const Site& site) { return site.file != header; });
    return met;
}

void show(const Violation& violation) {
    for (const std::string& step : violation.steps) {
        std::fprintf(stderr, "  %s\n", step.c_str());
    }
    std::fprintf(stderr, "%s\nschedule: {", violation.text.c_str());
    for (const auto& [at, picked] : violation.schedule) {
        std::fprintf(stderr, "{%zu, %zu}, ", at, picked);
    }
    std::fprintf(stderr, "}\n");
}

}  // namespace

Searched search(const Setting& setting, const std::optional<Mutation>& mutation) {
    Explorer explorer(setting);
    explorer.mutation = mutation;
    Searched searched{0, std::nullopt};
    // Where a bug is expected, random schedules come first, because they find it sooner. A bug that they do not find costs
    // both searches.
    Chance chance(7, chances());
    searched.violation = explore(explorer, chance, by_chance, searched.schedules);
    if (!searched.violation) {
        DepthFirst depth_first;
        searched.violation = explore(explorer, depth_first, exhaustive(setting), searched.schedules);
    }
    return searched;
}

void holds(const Setting& setting) {
    const Searched searched = search(setting, std::nullopt);
    if (searched.violation) {
        show(*searched.violation);
        std::fprintf(stderr, "%s does not hold\n", setting.name);
        std::_Exit(1);
    }
    const Bounds bounds = exhaustive(setting);
    std::printf("  %s: holds on %llu schedules: %llu by chance, and all with at most %u preemptions, %u old values and "
                "%u deaths, at most %u of these together\n",
                setting.name, static_cast<unsigned long long>(searched.schedules),
                static_cast<unsigned long long>(chances()), bounds.preemptions, bounds.stale, bounds.deaths,
                bounds.together);
}

void fails(const Setting& setting) {
    const Searched searched = search(setting, std::nullopt);
    if (!searched.violation) {
        std::fprintf(stderr, "%s: the planted bug was not found\n", setting.name);
        std::_Exit(1);
    }
    std::printf("  %s: found on schedule %llu: %s\n", setting.name, static_cast<unsigned long long>(searched.schedules),
                searched.violation->text.c_str());
}

void every_operation_is_needed(const std::string& header, std::initializer_list<Setting> settings,
                               const std::multiset<std::string>& spare) {
    std::set<Site> sites;
    for (const Setting& setting : settings) {
        sites.merge(sites_of(setting, header));
    }
    CHECK(!sites.empty());
    std::multiset<std::string> not_found;
    std::size_t found = 0;
    std::uint64_t schedules = 0;
    for (const Site& site : sites) {
        for (const Mutation& mutation : mutations(site)) {
            bool broken = false;
            for (const Setting& setting : settings) {
                const Searched searched = search(setting, mutation);
                schedules += searched.schedules;
                if ((broken = searched.violation.has_value())) {
                    break;
                }
            }
            found += broken ? 1U : 0U;
            if (!broken) {
                not_found.insert(mutation.name());
                if (not_found.count(mutation.name()) > spare.count(mutation.name())) {
                    std::fprintf(stderr, "not found: line %u, \"%s\"\n", mutation.site.line, mutation.name().c_str());
                }
            }
        }
    }
    std::printf("  %s: %zu planted bugs found, %zu operations stronger than any schedule needs, on %llu schedules\n",
                header.c_str(), found, not_found.size(), static_cast<unsigned long long>(schedules));
    for (const std::string& name : spare) {
        if (!not_found.contains(name)) {
            std::fprintf(stderr, "no longer spare: %s\n", name.c_str());
        }
    }
    CHECK(not_found == spare);
}

}  // namespace penstock::model
