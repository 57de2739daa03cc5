// The levels of a package that this processor can run. Asks the processor once. This file is compiled once for each
// package that has levels, with PENSTOCK_PACKAGE as the package's name. The package's level.hpp declares these functions.

#include <array>
#include <cstring>
#include <stdexcept>
#include <string>

#include PENSTOCK_LEVEL_HEADER

namespace penstock::PENSTOCK_PACKAGE {

extern const Level baseline;
#if defined(__x86_64__)
extern const Level avx2;
extern const Level avx512;
#endif

namespace {

struct Known {
    std::array<const Level*, 3> tables{};
    std::size_t count = 0;
};

Known find() {
    Known known;
    known.tables[known.count++] = &baseline;
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                            __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
    if (has_avx2) known.tables[known.count++] = &avx2;
    if (has_avx512) known.tables[known.count++] = &avx512;
#endif
    return known;
}

}  // namespace

std::span<const Level* const> levels() {
    static const Known known = find();
    return {known.tables.data(), known.count};
}

const Level& best_level() { return *levels().back(); }

const Level& level(const char* name) {
    for (const Level* known : levels())
        if (std::strcmp(known->name, name) == 0) return *known;
    throw std::invalid_argument(std::string("this processor does not run level ") + name);
}

}  // namespace penstock::PENSTOCK_PACKAGE
