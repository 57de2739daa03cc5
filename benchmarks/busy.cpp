// Games of `benchmarks/busy.py` in C++: the same work a step, by the C++ client, each game in a thread of its own.
//
//     build/benchmarks/busy localhost 8001 --sessions 8 --name busy-0                  # eight games of one agent
//     build/benchmarks/busy localhost 8001 --sessions 8 --agents 4 --name busy-0       # two games of four agents
//
// `python -m benchmarks.games` builds and starts it.
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "penstock/gamecore/agents.hpp"
#include "penstock/gamecore/client.hpp"

namespace gamecore = penstock::gamecore;

namespace {

constexpr std::int64_t kStepNs = 200'000;
constexpr int kEpisode = 64;
const std::string kSeen = R"({"obs":[0.0,0.0,0.0,0.0])";
const std::string kFirst = kSeen + "}", kNext = kSeen + R"(,"reward":1.0})";
const std::string kLast = kSeen + R"(,"reward":1.0,"terminated":true})";

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
    try {
        for (;;) {
            client->start(name, "0");
            client->tick(kFirst);
            for (int step = 1; step < kEpisode; ++step) {
                work();
                client->tick(kNext);
            }
            work();
            client->stop(kLast);
        }
    } catch (const gamecore::Lost&) {
    } catch (const gamecore::Refused&) {
    }
}

// The same with several agents, which act together.
void play_together(const std::string& host, std::uint16_t port, const std::string& name, int count) {
    const auto agents = gamecore::create_agents(host, port, name);
    std::vector<std::string> names;
    for (int agent = 0; agent < count; ++agent) {
        names.push_back(std::to_string(agent));
    }
    const auto ask = [&](gamecore::Kind kind, const std::string& body) {
        std::vector<gamecore::Request> requests;
        for (const std::string& agent : names) {
            requests.push_back({kind, agent, body});
        }
        for (const gamecore::Reply& reply : agents->ask(requests)) {
            if (!reply.is_answer()) {
                throw gamecore::Refused(reply.status, reply.body);
            }
        }
    };
    const auto work_all = [&] {
        for (int agent = 0; agent < count; ++agent) {
            work();
        }
    };
    try {
        for (;;) {
            agents->start(names);
            ask(gamecore::Kind::tick, kFirst);
            for (int step = 1; step < kEpisode; ++step) {
                work_all();
                ask(gamecore::Kind::tick, kNext);
            }
            work_all();
            ask(gamecore::Kind::stop, kLast);
        }
    } catch (const gamecore::Lost&) {
    } catch (const gamecore::Refused&) {
    }
}

}  // namespace

int main(int count, char** arguments) {
    int sessions = 8, agents = 1;
    std::string name = "busy";
    for (int at = 3; at + 1 < count; at += 2) {
        const std::string flag = arguments[at];
        if (flag == "--sessions") {
            sessions = std::atoi(arguments[at + 1]);
        } else if (flag == "--agents") {
            agents = std::atoi(arguments[at + 1]);
        } else if (flag == "--name") {
            name = arguments[at + 1];
        } else {
            count = 0;
        }
    }
    if (count < 3 || sessions < 1 || agents < 1) {
        std::fprintf(stderr, "usage: busy HOST PORT [--sessions N] [--agents N] [--name NAME]\n");
        return 2;
    }
    const auto port = static_cast<std::uint16_t>(std::atoi(arguments[2]));
    std::vector<std::thread> threads;
    const std::string host = arguments[1];
    for (int first = 0; first < sessions; first += agents) {
        const std::string own = name + "-" + std::to_string(first);
        if (agents == 1) {
            threads.emplace_back([=] { play(host, port, own); });
        } else {
            threads.emplace_back([=] { play_together(host, port, own, std::min(agents, sessions - first)); });
        }
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    return 0;
}
