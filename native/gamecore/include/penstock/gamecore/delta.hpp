// Delta encoding: what changed between two strings of bytes. Lossless for any bytes. C++17, because clients use it, too.
//
// A delta is the size of the result, and then commands until the result is whole. Numbers are varints: seven bits a byte,
// the low ones first, the eighth bit says that another byte follows. A command has two halves; the second one is left out
// if the first makes the result whole.
//
//     copy                               copy so many bytes from the place in the base; the place moves on by as many
//     2 * put + moves [place] bytes      append `put` bytes that stand here; then the place becomes `place` if `moves`
//                                        is 1, else it moves on by as many, at most to the end of the base
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::gamecore {

namespace delta {

// A put of n bytes ends where the next kRun bytes equal those of the base at place + n. A shorter run costs more than
// it saves.
constexpr std::size_t kRun = 4;
// A shift is taken if kShiftedRun bytes are equal there. The largest one that is tried has kMostShift bytes.
constexpr std::size_t kShiftedRun = 8, kMostShift = 24;
// A shift is looked for after so many bytes without a run. The number doubles each time, so that the search stays short
// where nothing is alike.
constexpr std::size_t kReach = 32;

template <class Word>
bool equal_words(const char* a, const char* b) {
    Word x, y;
    std::memcpy(&x, a, sizeof x);
    std::memcpy(&y, b, sizeof y);
    return x == y;
}

// How many bytes are equal from the start.
inline std::size_t equal_bytes(std::string_view a, std::string_view b) {
    const std::size_t most = std::min(a.size(), b.size());
    std::size_t count = 0;
    while (most - count >= sizeof(std::uint64_t) && equal_words<std::uint64_t>(a.data() + count, b.data() + count)) {
        count += sizeof(std::uint64_t);
    }
    while (count < most && a[count] == b[count]) {
        ++count;
    }
    return count;
}

inline void append(std::string& to, std::uint64_t number) {
    while (number >= 0x80) {
        to.push_back(static_cast<char>(number | 0x80));
        number >>= 7;
    }
    to.push_back(static_cast<char>(number));
}

// Takes a varint away from the front. False: there is none.
inline bool take(std::string_view& from, std::uint64_t& number) {
    number = 0;
    for (unsigned shift = 0; shift < 64 && !from.empty(); shift += 7) {
        const auto byte = static_cast<unsigned char>(from.front());
        from.remove_prefix(1);
        if (shift == 63 && byte > 1) {
            return false;
        }
        number |= std::uint64_t{byte & 0x7fU} << shift;
        if (byte < 0x80) {
            return true;
        }
    }
    return false;
}

// The number of bytes that are put, and the place in the base from which copying goes on.
struct Change {
    std::size_t put, place;
};

// Looks in `base`, near `place`, for the bytes of `next` that follow `at` and `first` to `last` - 1 put bytes.
inline std::optional<Change> shifted(
    std::string_view base, std::size_t place, std::string_view next, std::size_t at, std::size_t first, std::size_t last) {
    for (std::size_t put = first; put < last && at + put + kShiftedRun <= next.size(); ++put) {
        const char* wanted = next.data() + at + put;
        for (std::size_t shift = 1; shift <= kMostShift; ++shift) {
            for (const bool back : {false, true}) {
                if (back && shift > place + put) {
                    continue;
                }
                const std::size_t from = back ? place + put - shift : place + put + shift;
                if (from <= base.size() && base.size() - from >= kShiftedRun &&
                    equal_words<std::uint64_t>(base.data() + from, wanted)) {
                    return Change{put, from};
                }
            }
        }
    }
    return std::nullopt;
}

// The change that begins at `at`, where the two differ.
inline Change change_at(std::string_view base, std::size_t place, std::string_view next, std::size_t at) {
    const std::size_t left = next.size() - at;
    std::size_t put = 0, stride = kReach;
    while (put < left) {
        const std::size_t until = put + std::min(stride, left - put);
        const std::size_t begin = until - std::min(kReach, until - put);
        for (; put < until; ++put) {
            if (left - put >= kRun && place + put <= base.size() && base.size() - place - put >= kRun &&
                equal_words<std::uint32_t>(base.data() + place + put, next.data() + at + put)) {
                return {put, place + put};
            }
        }
        if (const auto found = shifted(base, place, next, at, begin, until)) {
            return *found;
        }
        stride *= 2;
    }
    return {put, std::min(place + put, base.size())};
}

// Carries a delta out. Without `out` it is only checked. Nothing: it is malformed.
inline std::optional<std::size_t> run(std::string_view base, std::string_view delta, std::size_t limit, char* out) {
    std::uint64_t size = 0, done = 0, place = 0;
    if (!take(delta, size) || size > limit) {
        return std::nullopt;
    }
    while (done < size) {
        std::uint64_t copy = 0, put = 0, to = 0;
        if (!take(delta, copy) || copy > size - done || copy > base.size() - place) {
            return std::nullopt;
        }
        if (out != nullptr && copy > 0) {
            std::memcpy(out + done, base.data() + place, copy);
        }
        done += copy;
        place += copy;
        if (done == size) {
            break;
        }
        if (!take(delta, put)) {
            return std::nullopt;
        }
        const bool moves = (put & 1) != 0;
        put >>= 1;
        if (moves && (!take(delta, to) || to > base.size())) {
            return std::nullopt;
        }
        if (put > size - done || put > delta.size()) {
            return std::nullopt;
        }
        if (out != nullptr && put > 0) {
            std::memcpy(out + done, delta.data(), put);
        }
        delta.remove_prefix(put);
        done += put;
        place = moves ? to : std::min<std::uint64_t>(place + put, base.size());
    }
    if (!delta.empty()) {
        return std::nullopt;
    }
    return size;
}

}  // namespace delta

// The delta of `next` against `base`. Nothing: it would not be smaller than `next`.
inline std::optional<std::string> encode(std::string_view base, std::string_view next) {
    std::string made;
    delta::append(made, next.size());
    std::size_t at = 0, place = 0;
    while (at < next.size()) {
        const std::size_t copy = delta::equal_bytes(base.substr(place), next.substr(at));
        delta::append(made, copy);
        at += copy;
        place += copy;
        if (at == next.size()) {
            break;
        }
        const delta::Change change = delta::change_at(base, place, next, at);
        const bool moves = change.place != std::min(place + change.put, base.size());
        delta::append(made, 2 * std::uint64_t{change.put} + (moves ? 1 : 0));
        if (moves) {
            delta::append(made, change.place);
        }
        if (made.size() + change.put >= next.size()) {
            return std::nullopt;
        }
        made.append(next.substr(at, change.put));
        at += change.put;
        place = change.place;
    }
    if (made.size() >= next.size()) {
        return std::nullopt;
    }
    return made;
}

// How many bytes the result of a delta has. Nothing: the delta is malformed, does not fit its base, or has a result of more
// than `limit` bytes. Takes no memory, whatever the delta says.
inline std::optional<std::size_t> result_size(std::string_view base, std::string_view delta, std::size_t limit) {
    return delta::run(base, delta, limit, nullptr);
}

// Writes the result of a delta that `result_size` has accepted to `out`, which has room for it.
inline void decode(std::string_view base, std::string_view delta, char* out) {
    delta::run(base, delta, static_cast<std::size_t>(-1), out);
}

}  // namespace penstock::gamecore
