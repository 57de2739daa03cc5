// Which levels this processor can run. Asks the processor once.

#include <array>
#include <cstring>
#include <stdexcept>
#include <string>

#include "penstock/kernels/processor.hpp"
#include "penstock/replay/level.hpp"

namespace penstock::replay {

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
    if (kernels::has_avx2()) known.tables[known.count++] = &avx2;
    if (kernels::has_avx512()) known.tables[known.count++] = &avx512;
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

}  // namespace penstock::replay
