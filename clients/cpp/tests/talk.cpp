// Carries out the calls on its standard input with a client, and prints what came of each, one line a call.
//
//     talk HOST PORT [--async] [--agents GAME] [--delta] [--key KEY] [--token TOKEN] [--timeout MS] [--patience MS]
//
// A line is `start GAME AGENT`, `tick BODY`, `stop`, `stop BODY` or `wait MS`. A status and a body are printed; status 0 stands
// for a lost connection. With --async all calls are made at once, and a last line says how many replies came out of order.
// With --agents a line is `start AGENT AGENT ...`, or requests of agents that act together, with tabs between them:
// `tick AGENT BODY`, `stop AGENT BODY`.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <iostream>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "penstock/gamecore/agents.hpp"
#include "penstock/gamecore/client.hpp"

namespace gamecore = penstock::gamecore;

namespace {

struct Settings {
    std::string host, key, token, game;
    std::uint16_t port = 0;
    bool is_async = false;
    gamecore::Options options;
};

Settings read(int count, char** arguments) {
    Settings made;
    made.host = arguments[1];
    made.port = static_cast<std::uint16_t>(std::stoi(arguments[2]));
    for (int at = 3; at < count; ++at) {
        const std::string flag = arguments[at];
        if (flag == "--async") {
            made.is_async = true;
        } else if (flag == "--delta") {
            made.options.delta = true;
        } else if (at + 1 < count && flag == "--agents") {
            made.game = arguments[++at];
        } else if (at + 1 < count && flag == "--key") {
            made.key = arguments[++at];
        } else if (at + 1 < count && flag == "--token") {
            made.token = arguments[++at];
        } else if (at + 1 < count && flag == "--timeout") {
            made.options.timeout = std::chrono::milliseconds(std::stoi(arguments[++at]));
        } else if (at + 1 < count && flag == "--patience") {
            made.options.patience = std::chrono::milliseconds(std::stoi(arguments[++at]));
        } else {
            std::cerr << "unknown flag " << flag << '\n';
            std::exit(2);
        }
    }
    return made;
}

std::pair<std::string, std::string> parted(const std::string& line) {
    const std::size_t space = line.find(' ');
    return space == std::string::npos ? std::pair(line, std::string()) : std::pair(line.substr(0, space), line.substr(space + 1));
}

std::string call(gamecore::Client& client, const std::string& line) {
    const auto [kind, rest] = parted(line);
    if (kind == "start") {
        const auto [game, agent] = parted(rest);
        client.start(game, agent);
        return {};
    }
    if (kind == "tick") {
        return client.tick(rest);
    }
    if (kind == "wait") {
        std::this_thread::sleep_for(std::chrono::milliseconds(std::stoi(rest)));
        return {};
    }
    client.stop(rest);
    return {};
}

void talk_in_turn(gamecore::Client& client, const std::vector<std::string>& lines) {
    for (const std::string& line : lines) {
        try {
            std::cout << "200 " + call(client, line) + '\n' << std::flush;
        } catch (const gamecore::Refused& refused) {
            std::cout << refused.status() << ' ' << refused.what() << '\n' << std::flush;
        } catch (const gamecore::Lost& lost) {
            std::cout << "0 " << lost.what() << '\n' << std::flush;
        }
    }
}

std::vector<std::string> split(const std::string& text, char at) {
    std::vector<std::string> parts;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, at);) {
        parts.push_back(part);
    }
    return parts;
}

std::vector<gamecore::Reply> together(gamecore::Agents& agents, const std::string& line) {
    if (const auto [kind, rest] = parted(line); kind == "start") {
        agents.start(split(rest, ' '));
        return {{gamecore::Kind::start, 200, {}}};
    }
    std::vector<gamecore::Request> requests;
    for (const std::string& one : split(line, '\t')) {
        const auto [kind, rest] = parted(one);
        const auto [agent, body] = parted(rest);
        requests.push_back({kind == "tick" ? gamecore::Kind::tick : gamecore::Kind::stop, agent, body});
    }
    return agents.ask(requests);
}

void talk_together(gamecore::Agents& agents, const std::vector<std::string>& lines) {
    for (const std::string& line : lines) {
        try {
            for (const gamecore::Reply& reply : together(agents, line)) {
                std::cout << reply.status << ' ' << reply.body << '\n';
            }
        } catch (const gamecore::Refused& refused) {
            std::cout << refused.status() << ' ' << refused.what() << '\n';
        } catch (const gamecore::Lost& lost) {
            std::cout << "0 " << lost.what() << '\n';
        }
        std::cout << std::flush;
    }
}

}  // namespace

int main(int count, char** arguments) {
    if (count < 3) {
        std::cerr << "usage: talk HOST PORT [flags]\n";
        return 2;
    }
    const Settings settings = read(count, arguments);
    std::vector<std::string> lines;
    for (std::string line; std::getline(std::cin, line);) {
        lines.push_back(line);
    }
    if (!settings.game.empty()) {
        talk_together(
            *gamecore::create_agents(settings.host, settings.port, settings.game, settings.key, settings.token, settings.options),
            lines);
        return 0;
    }
    if (!settings.is_async) {
        const auto client = gamecore::create_client(settings.host, settings.port, nullptr, settings.key, settings.token, settings.options);
        talk_in_turn(*client, lines);
        return 0;
    }
    std::mutex mutex;
    std::promise<void> all;
    std::size_t replies = 0, out_of_order = 0;
    const auto told = [&](const gamecore::Reply& reply) {
        const std::lock_guard lock(mutex);
        const std::string wanted = parted(lines[replies]).first;
        const char* const kinds[] = {"", "start", "tick", "stop"};
        out_of_order += wanted == kinds[static_cast<std::size_t>(reply.kind)] ? 0 : 1;
        std::cout << reply.status << ' ' << reply.body << '\n';
        if (++replies == lines.size()) {
            all.set_value();
        }
    };
    const auto client = gamecore::create_client(settings.host, settings.port, told, settings.key, settings.token, settings.options);
    for (const std::string& line : lines) {
        call(*client, line);
    }
    all.get_future().wait();
    std::cout << "out of order: " << out_of_order << '\n';
    return 0;
}
