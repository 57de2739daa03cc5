// Several agents of one game that act together: their requests leave as one, and so do the replies.
//
//     auto agents = penstock::gamecore::create_agents("localhost", 8001, "my-game");
//     agents->start({"0", "1"});
//     std::vector<Reply> replies = agents->ask({{Kind::tick, "0", R"({"obs": [0.1]})"}, {Kind::tick, "1", R"({"obs": [0.2]})"}});
//
// For a server this is much less work than a client for each agent: it wakes once for all of them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "penstock/gamecore/error.hpp"
#include "penstock/gamecore/frames.hpp"
#include "penstock/gamecore/line.hpp"
#include "penstock/gamecore/options.hpp"
#include "penstock/gamecore/reply.hpp"

namespace penstock::gamecore {

struct Request {
    Kind kind;
    std::string agent;
    std::string body;
};

// Over one connection, for one thread. A lost connection loses the episodes of all agents. `Options::delta` has no effect.
class Agents {
  public:
    Agents(std::string host, std::uint16_t port, std::string game, std::string key, std::string token, Options options)
        : line_(std::move(host), port, std::move(key), std::move(token)), game_(std::move(game)), options_(options) {}

    // Begins an episode of each. One that is still open on the server ends as truncated. Throws Lost, Refused.
    void start(std::vector<std::string> left) {
        const auto until = Clock::now() + options_.patience;
        for (std::size_t tries = 0; !left.empty(); ++tries) {
            const bool is_late = Clock::now() > until;
            try {
                left = refused_starts(left, is_late);
            } catch (const Lost&) {
                if (is_late) {
                    throw;
                }
            }
            if (!left.empty()) {
                std::this_thread::sleep_for(pause_after(tries));
            }
        }
    }

    // Sends the requests together. The replies are in their order, and none of them has status 0. Throws Lost, or Refused for
    // the token.
    std::vector<Reply> ask(const std::vector<Request>& requests) {
        if (requests.size() > kMost) {
            throw std::invalid_argument("at most 64 requests of Gamecore are sent together");
        }
        const auto deadline = Clock::now() + options_.timeout;
        bytes_.clear();
        const std::uint64_t first = number_ + 1;
        for (const Request& request : requests) {
            append_request(bytes_, {++number_, 0, request.kind, Encoding::plain}, game_ + "-agent-" + request.agent, request.body);
        }
        std::vector<Reply> replies;
        replies.reserve(requests.size());
        try {
            line_.connect(deadline);
            line_.send(bytes_, deadline);
            for (const Request& request : requests) {
                auto [status, body] = line_.reply(first + replies.size(), deadline);
                note(request, status);
                replies.push_back({request.kind, status, std::move(body)});
            }
        } catch (const Lost&) {
            line_.close();
            throw;
        }
        return replies;
    }

  private:
    static constexpr std::size_t kMost = 64;  // requests of one connection that a server takes at a time

    // Which of them could not begin. Throws Lost, and Refused if another try would be of no use.
    std::vector<std::string> refused_starts(const std::vector<std::string>& agents, bool is_late) {
        std::vector<Request> stops, starts;
        for (const std::string& agent : agents) {
            if (begun_.count(agent) != 0) {
                stops.push_back({Kind::stop, agent, {}});
            }
            starts.push_back({Kind::start, agent, {}});
        }
        ask(stops);
        const std::vector<Reply> replies = ask(starts);
        std::vector<std::string> refused;
        for (std::size_t place = 0; place < agents.size(); ++place) {
            const Reply& reply = replies[place];
            if (reply.is_answer()) {
                continue;
            }
            if (is_late || !may_begin_later(reply.status)) {
                throw Refused(reply.status, reply.body);
            }
            refused.push_back(agents[place]);
        }
        return refused;
    }

    // Which agents have an episode on the server, as far as it is known here.
    void note(const Request& request, int status) {
        if (request.kind == Kind::start && (status == kOk || status == kExists)) {
            begun_.insert(request.agent);
        } else if (request.kind == Kind::stop) {
            begun_.erase(request.agent);
        }
    }

    Line line_;
    std::string game_;
    Options options_;
    std::uint64_t number_ = 0;
    std::string bytes_;
    std::set<std::string> begun_;
};

// Nothing is connected before `start`.
inline std::unique_ptr<Agents> create_agents(
    std::string host, std::uint16_t port, std::string game, std::string key = {}, std::string token = {}, Options options = {}) {
    return std::make_unique<Agents>(std::move(host), port, std::move(game), std::move(key), std::move(token), options);
}

}  // namespace penstock::gamecore
