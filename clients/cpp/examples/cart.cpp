// A game that drives itself: the physics of CartPole (Barto, Sutton and Anderson, 1983) inside a client.
//
//     cd examples/game && penstock train --algo appo --env gamecore://cart_agent:CartAgent --tcp_port 8001 &
//     build/clients/cpp/cart localhost 8001 --games 8
//
// Built by `make test-clients`, by CMake with -DPENSTOCK_CLIENT_PROGRAMS=ON, or from the repository's root by
//
//     g++ -std=c++17 -O2 -pthread -I clients/cpp/include -I native/gamecore/include clients/cpp/examples/cart.cpp -o cart
//
// Each game plays episode after episode until the run has ended. A game of your own does the same: `start`, `tick` with what
// it sees and the reward of the action before, `stop` with what came of the last action.
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "penstock/gamecore/client.hpp"

namespace gamecore = penstock::gamecore;

namespace {

constexpr int kStepLimit = 500;

// A pole on a cart. A step takes 0.02 s of the game's time.
class Cart {
  public:
    explicit Cart(std::mt19937& chance) {
        std::uniform_real_distribution<double> near(-0.05, 0.05);
        for (double& value : state_) {
            value = near(chance);
        }
    }

    // Pushes left (0) or right (1). True: the pole has fallen, or the cart has left the track.
    bool push(int action) {
        auto& [x, speed, angle, turning] = state_;
        const double force = action == 1 ? 10.0 : -10.0, sine = std::sin(angle), cosine = std::cos(angle);
        const double inner = (force + 0.05 * turning * turning * sine) / 1.1;
        const double turn = (9.8 * sine - cosine * inner) / (0.5 * (4.0 / 3.0 - 0.1 * cosine * cosine / 1.1));
        const double accelerates = inner - 0.05 * turn * cosine / 1.1;
        x += 0.02 * speed;
        speed += 0.02 * accelerates;
        angle += 0.02 * turning;
        turning += 0.02 * turn;
        return std::fabs(x) > 2.4 || std::fabs(angle) > 0.20943951023931953;
    }

    // What the policy sees, as the beginning of a JSON object.
    [[nodiscard]] std::string seen() const {
        std::array<char, 128> text{};
        std::snprintf(text.data(), text.size(), "{\"obs\":[%.9g,%.9g,%.9g,%.9g]", state_[0], state_[1], state_[2], state_[3]);
        return text.data();
    }

  private:
    std::array<double, 4> state_{};
};

// The number in {"action": 1}.
int action_in(const std::string& reply) {
    const std::size_t colon = reply.find(':');
    if (colon == std::string::npos) {
        throw gamecore::Lost("the reply holds no action: " + reply);
    }
    return std::atoi(reply.c_str() + colon + 1);
}

// Plays one episode. Returns how long the pole stood.
int episode(gamecore::Client& client, const std::string& agent, std::mt19937& chance) {
    Cart cart(chance);
    client.start("cart", agent);
    int action = action_in(client.tick(cart.seen() + "}"));
    for (int step = 1;; ++step) {
        const bool has_fallen = cart.push(action);
        if (has_fallen || step == kStepLimit) {
            client.stop(cart.seen() + ",\"reward\":1,\"terminated\":" + (has_fallen ? "true}" : "false}"));
            return step;
        }
        action = action_in(client.tick(cart.seen() + ",\"reward\":1}"));
    }
}

// Plays until the server is gone, or has refused an episode. Returns the lengths of the episodes.
std::vector<int> play(const std::string& host, std::uint16_t port, int number, gamecore::Options options) {
    const auto client = gamecore::create_client(host, port, nullptr, {}, {}, options);
    std::mt19937 chance(static_cast<std::uint32_t>(number));
    std::vector<int> lengths;
    bool was_lost = false;
    for (;;) {
        try {
            lengths.push_back(episode(*client, std::to_string(number), chance));
            was_lost = false;
        } catch (const gamecore::Lost&) {
            // `start` has tried for as long as it may: the second time in a row nobody is there.
            if (was_lost) {
                return lengths;
            }
            was_lost = true;
        } catch (const gamecore::Refused&) {
            return lengths;
        }
    }
}

}  // namespace

int main(int count, char** arguments) {
    int games = 8;
    gamecore::Options options;
    options.patience = std::chrono::seconds(30);
    for (int at = 3; at < count; ++at) {
        const std::string flag = arguments[at];
        if (flag == "--games" && at + 1 < count) {
            games = std::atoi(arguments[++at]);
        } else if (flag == "--patience" && at + 1 < count) {
            options.patience = std::chrono::seconds(std::atoi(arguments[++at]));
        } else {
            count = 0;
        }
    }
    if (count < 3 || games < 1) {
        std::fprintf(stderr, "usage: cart HOST PORT [--games N] [--patience SECONDS]\n");
        return 2;
    }
    const auto port = static_cast<std::uint16_t>(std::atoi(arguments[2]));
    std::vector<std::vector<int>> lengths(static_cast<std::size_t>(games));
    std::vector<std::thread> threads;
    for (int number = 0; number < games; ++number) {
        threads.emplace_back([&, number] { lengths[static_cast<std::size_t>(number)] = play(arguments[1], port, number, options); });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    std::size_t episodes = 0;
    double steps = 0;
    for (const auto& of_game : lengths) {
        episodes += of_game.size();
        for (const int length : of_game) {
            steps += length;
        }
    }
    std::printf("%zu episodes, %.1f steps each\n", episodes, episodes > 0 ? steps / static_cast<double>(episodes) : 0.0);
    return 0;
}
