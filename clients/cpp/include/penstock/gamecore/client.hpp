// A client of Gamecore: one agent of a game asks a run that trains, or a served policy, for actions.
//
//     auto client = penstock::gamecore::create_client("localhost", 8001);
//     client->start("my-game", "0");
//     std::string action = client->tick(R"({"obs": [0.1, 0.2]})");
//     client->stop(R"({"obs": [0.3, 0.4], "reward": 1.0, "terminated": true})");
//
// Without a callback each call waits for its reply, and throws Lost or Refused. With one, calls return at once; the replies
// come to the callback in the order of the calls, from a thread of the client. What bodies hold is agreed elsewhere.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "penstock/gamecore/error.hpp"
#include "penstock/gamecore/frames.hpp"
#include "penstock/gamecore/reply.hpp"
#include "penstock/gamecore/session.hpp"

namespace penstock::gamecore {

// May call the client, which then only takes the request. Must not throw, and must not destroy the client.
using Callback = std::function<void(const Reply&)>;

class Client {
  public:
    Client(std::string host, std::uint16_t port, Callback callback, std::string key, std::string token, Options options)
        : session_(std::move(host), port, std::move(key), std::move(token), options), usual_(std::move(callback)),
          callback_(usual_) {}
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    // Waits for the request that is under way. Requests behind it are forgotten.
    ~Client() {
        {
            const std::lock_guard lock(mutex_);
            ends_ = true;
        }
        session_.give_up();
        changed_.notify_all();
        if (worker_.joinable()) {
            worker_.join();
        }
    }

    // Begins an episode of the session `<game>-agent-<agent>`. Connects, and tries again while the server is away or full. A
    // callback takes the place of that of create_client until the next start.
    void start(std::string_view game, std::string_view agent, Callback callback = nullptr) {
        callback_ = callback ? std::move(callback) : usual_;
        std::string name(game);
        name.append("-agent-").append(agent);
        take({Kind::start, std::move(name), callback_});
    }

    // The reply to a tick. With a callback: empty, and the reply comes there.
    std::string tick(std::string_view data) { return take({Kind::tick, std::string(data), callback_}); }

    // Ends the episode. Without data the last action counts as not taken.
    void stop(std::string_view data = {}) { take({Kind::stop, std::string(data), callback_}); }

  private:
    struct Call {
        Kind kind;
        std::string text;  // name of the session, or body
        Callback callback;
    };

    std::string take(Call call) {
        std::unique_lock lock(mutex_);
        if (!call.callback) {
            changed_.wait(lock, [this] { return calls_.empty() && !is_busy_; });
            lock.unlock();
            return answer(call);
        }
        calls_.push_back(std::move(call));
        if (!worker_.joinable()) {
            worker_ = std::thread([this] { work(); });
        }
        changed_.notify_all();
        return {};
    }

    std::string answer(const Call& call) {
        switch (call.kind) {
            case Kind::start:
                session_.start(call.text);
                return {};
            case Kind::stop:
                session_.stop(call.text);
                return {};
            default:
                return session_.tick(call.text);
        }
    }

    Reply reply_to(const Call& call) {
        try {
            return {call.kind, 200, answer(call)};
        } catch (const Refused& refused) {
            return {call.kind, refused.status(), refused.what()};
        } catch (const Lost& lost) {
            return {call.kind, 0, lost.what()};
        }
    }

    void work() {
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [this] { return ends_ || !calls_.empty(); });
            if (ends_) {
                return;
            }
            const Call call = std::move(calls_.front());
            calls_.pop_front();
            is_busy_ = true;
            lock.unlock();
            call.callback(reply_to(call));
            lock.lock();
            is_busy_ = false;
            changed_.notify_all();
        }
    }

    Session session_;
    Callback usual_;     // of create_client
    Callback callback_;  // of the present episode
    std::mutex mutex_;   // guards what follows
    std::condition_variable changed_;
    std::deque<Call> calls_;
    std::thread worker_;
    bool is_busy_ = false;
    bool ends_ = false;
};

// One client for each agent. Nothing is connected before `start`.
inline std::unique_ptr<Client> create_client(
    std::string host, std::uint16_t port, Callback callback = nullptr, std::string key = {}, std::string token = {},
    Options options = {}) {
    return std::make_unique<Client>(
        std::move(host), port, std::move(callback), std::move(key), std::move(token), options);
}

}  // namespace penstock::gamecore
