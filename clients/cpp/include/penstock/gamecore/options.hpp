// What a user chooses for a client, and when an episode that could not begin is tried again.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace penstock::gamecore {

struct Options {
    std::chrono::milliseconds timeout{60000};   // longest time for one reply
    std::chrono::milliseconds patience{60000};  // how long `start` tries while the server is away or full
    bool delta = false;                         // send of each tick only what changed since the one before
};

// How long to wait before an episode is tried to begin again.
inline std::chrono::milliseconds pause_after(std::size_t tries) {
    constexpr int pauses[] = {50, 100, 200, 500, 1000};
    return std::chrono::milliseconds(pauses[std::min<std::size_t>(tries, 4)]);
}

inline constexpr int kNoSession = 404;  // the session has no episode: the server has ended it by itself
inline constexpr int kExists = 409;     // the session has an episode already: a lost connection left it

// Whether an episode that could not begin may begin later.
inline bool may_begin_later(int status) { return status == kExists || status == 429 || status == 503; }

}  // namespace penstock::gamecore
