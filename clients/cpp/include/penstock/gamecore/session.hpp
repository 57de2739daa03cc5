// One agent's session: requests that wait for their replies. Connects, and connects again. For one thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "penstock/gamecore/connection.hpp"
#include "penstock/gamecore/delta.hpp"
#include "penstock/gamecore/error.hpp"
#include "penstock/gamecore/frames.hpp"

namespace penstock::gamecore {

struct Options {
    std::chrono::milliseconds timeout{60000};   // longest time for one reply
    std::chrono::milliseconds patience{60000};  // how long `start` tries while the server is away or full
    bool delta = false;                         // send of each tick only what changed since the one before
};

class Session {
  public:
    Session(std::string host, std::uint16_t port, std::string key, std::string token, Options options)
        : host_(std::move(host)), key_(std::move(key)), token_(std::move(token)), options_(options), port_(port) {
        if (std::max(key_.size(), token_.size()) > kMostKey) {
            throw std::invalid_argument("a key or token of Gamecore has at most 4096 bytes");
        }
    }

    // Begins an episode. One that is still open on the server ends as truncated. Throws Lost, Refused.
    void start(const std::string& name) {
        if (is_started_ && name != name_) {
            stop_quietly();
        }
        name_ = name;
        const auto until = Clock::now() + options_.patience;
        for (std::size_t tries = 0;; ++tries) {
            try {
                if (is_started_) {
                    is_started_ = false;
                    ask(Kind::stop, {});
                }
                ask(Kind::start, {});
                is_started_ = true;
                return;
            } catch (const Refused& refused) {
                // 409: the episode before was lost with its connection, and the server still has it.
                is_started_ = refused.status() == 409;
                const bool may_try = is_started_ || refused.status() == 404 || refused.status() == 429 || refused.status() == 503;
                if (!may_try || Clock::now() > until || gives_up_) {
                    throw;
                }
            } catch (const Lost&) {
                if (Clock::now() > until || gives_up_) {
                    throw;
                }
            }
            if (!is_started_) {
                std::this_thread::sleep_for(pause(tries));
            }
        }
    }

    // The reply to a tick. Throws Lost, Refused: the episode is as it was before.
    std::string tick(std::string_view body) { return ask(Kind::tick, body); }

    // Ends the episode. Throws Lost, Refused.
    void stop(std::string_view body) {
        ask(Kind::stop, body);
        is_started_ = false;
    }

    // Another thread wants `start` to try no longer.
    void give_up() { gives_up_ = true; }

  private:
    // A body that deltas may refer to, and the id of the request that held it.
    struct Base {
        std::uint64_t number = 0;
        std::string body;
    };

    // The server lacks the base of a delta, and has not taken the request.
    struct BaseMissing {};

    static constexpr std::uint64_t kMostReply = 1 << 30;
    static constexpr std::size_t kMostKey = 4096;
    static constexpr std::size_t kMostText = 1 << 16;
    static constexpr int kOk = 200, kBaseMissing = 412;

    static std::chrono::milliseconds pause(std::size_t tries) {
        constexpr int pauses[] = {50, 100, 200, 500, 1000};
        return std::chrono::milliseconds(pauses[std::min<std::size_t>(tries, 4)]);
    }

    void stop_quietly() {
        is_started_ = false;
        try {
            ask(Kind::stop, {});
        } catch (const Refused&) {
        } catch (const Lost&) {
            // The server ends it as truncated by itself.
        }
    }

    std::string ask(Kind kind, std::string_view body) {
        const auto deadline = Clock::now() + options_.timeout;
        try {
            connect(deadline);
            try {
                return exchange(kind, body, deadline);
            } catch (const BaseMissing&) {
                // There is no base now, so this time a key frame is sent.
                return exchange(kind, body, deadline);
            }
        } catch (const Lost&) {
            connection_.close();
            throw;
        }
    }

    void connect(Clock::time_point deadline) {
        if (connection_.is_open()) {
            return;
        }
        has_base_ = false;
        connection_.open(host_, port_, deadline);
        connection_.send(greeting(key_, token_), deadline);
        char head[kWelcomeSize];
        connection_.receive(head, sizeof head, deadline, "the server has closed the connection; it may speak version 1 only");
        const Welcome welcome = read_welcome(head);
        if (!welcome.is_valid || welcome.text_size > kMostText) {
            throw Lost("the server's bytes are no welcome of Gamecore");
        }
        const std::string text = received(welcome.text_size, deadline);
        if (welcome.status != kOk) {
            connection_.close();
            throw Refused(welcome.status, text);
        }
    }

    std::string exchange(Kind kind, std::string_view body, Clock::time_point deadline) {
        const bool is_kept = options_.delta && kind == Kind::tick;
        std::optional<std::string> delta;
        if (is_kept && has_base_) {
            delta = encode(base_.body, body);
        }
        RequestHead head{++number_, 0, kind, is_kept ? Encoding::key : Encoding::plain};
        if (delta) {
            head.encoding = Encoding::delta;
            head.base = base_.number;
        }
        request_.clear();
        append_request(request_, head, name_, delta ? std::string_view(*delta) : body);
        if (is_kept) {
            asked_.number = number_;
            asked_.body.assign(body);
        } else {
            has_base_ = false;
        }
        connection_.send(request_, deadline);
        std::string reply = replied(deadline);
        if (is_kept) {
            std::swap(base_, asked_);
            has_base_ = true;
        }
        return reply;
    }

    std::string replied(Clock::time_point deadline) {
        char bytes[kReplySize];
        connection_.receive(bytes, sizeof bytes, deadline, kClosed);
        const ReplyHead head = read_reply(bytes);
        if (head.number != number_ || head.body_size > kMostReply) {
            throw Lost("the server's bytes are no reply of Gamecore");
        }
        std::string body = received(static_cast<std::size_t>(head.body_size), deadline);
        if (head.status == kBaseMissing && has_base_) {
            has_base_ = false;
            throw BaseMissing{};
        }
        if (head.status != kOk) {
            throw Refused(head.status, body);
        }
        return body;
    }

    std::string received(std::size_t size, Clock::time_point deadline) {
        std::string bytes(size, '\0');
        connection_.receive(bytes.data(), size, deadline, kClosed);
        return bytes;
    }

    static constexpr const char* kClosed = "the server has closed the connection";

    std::string host_, key_, token_, name_;
    Options options_;
    Connection connection_;
    std::uint64_t number_ = 0;
    std::string request_;
    Base base_;   // the latest tick that the server has answered
    Base asked_;  // the tick that waits for its answer
    std::uint16_t port_;
    bool has_base_ = false;
    bool is_started_ = false;
    std::atomic<bool> gives_up_{false};
};

}  // namespace penstock::gamecore
