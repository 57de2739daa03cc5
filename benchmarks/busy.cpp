// Games of `benchmarks/busy.py` in C++: the same work a step, by the C++ client, each session in a thread of its own.
//
//     build/benchmarks/busy localhost 8001 --sessions 8 --name busy-0
//
// `python -m benchmarks.games` builds and starts it.
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "penstock/gamecore/client.hpp"

namespace gamecore = penstock::gamecore;

namespace {

constexpr std::int64_t kStepNs = 200'000;
constexpr int kEpisode = 64;
constexpr const char* kSeen = R"({"obs":[0.0,0.0,0.0,0.0])";

std::int64_t thread_time_ns() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

// One step's work. Time in which the processor does something else does not count.
void work() {
    const std::int64_t until = thread_time_ns() + kStepNs;
    while (thread_time_ns() < until) {
    }
}

// Episodes until the run has ended.
void play(const std::string& host, std::uint16_t port, const std::string& name) {
    const auto client = gamecore::create_client(host, port);
    const std::string seen = kSeen, first = seen + "}", next = seen + R"(,"reward":1.0})";
    const std::string last = seen + R"(,"reward":1.0,"terminated":true})";
    try {
        for (;;) {
            client->start(name, "0");
            client->tick(first);
            for (int step = 1; step < kEpisode; ++step) {
                work();
                client->tick(next);
            }
            work();
            client->stop(last);
        }
    } catch (const gamecore::Lost&) {
    } catch (const gamecore::Refused&) {
    }
}

}  // namespace

int main(int count, char** arguments) {
    int sessions = 8;
    std::string name = "busy";
    for (int at = 3; at + 1 < count; at += 2) {
        const std::string flag = arguments[at];
        if (flag == "--sessions") {
            sessions = std::atoi(arguments[at + 1]);
        } else if (flag == "--name") {
            name = arguments[at + 1];
        } else {
            count = 0;
        }
    }
    if (count < 3 || sessions < 1) {
        std::fprintf(stderr, "usage: busy HOST PORT [--sessions N] [--name NAME]\n");
        return 2;
    }
    const auto port = static_cast<std::uint16_t>(std::atoi(arguments[2]));
    std::vector<std::thread> threads;
    for (int number = 0; number < sessions; ++number) {
        threads.emplace_back(play, arguments[1], port, name + "-" + std::to_string(number));
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    return 0;
}
