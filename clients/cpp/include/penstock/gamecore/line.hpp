// A connection that was welcomed: requests leave as bytes, replies are read one after the other. Knows no sessions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "penstock/gamecore/connection.hpp"
#include "penstock/gamecore/error.hpp"
#include "penstock/gamecore/frames.hpp"

namespace penstock::gamecore {

inline constexpr int kOk = 200;

class Line {
  public:
    Line(std::string host, std::uint16_t port, std::string key, std::string token)
        : host_(std::move(host)), key_(std::move(key)), token_(std::move(token)), port_(port) {
        if (key_.size() > kMostKey || token_.size() > kMostKey) {
            throw std::invalid_argument("a key or token of Gamecore has at most 4096 bytes");
        }
    }

    void close() { connection_.close(); }

    // True: the connection is new. Throws Lost, or Refused for the token.
    bool connect(Clock::time_point deadline) {
        if (connection_.is_open()) {
            return false;
        }
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
        return true;
    }

    // Throws Lost.
    void send(std::string_view bytes, Clock::time_point deadline) { connection_.send(bytes, deadline); }

    // Status and body of the reply to the request of this number, which is the next one. Throws Lost.
    std::pair<int, std::string> reply(std::uint64_t number, Clock::time_point deadline) {
        char bytes[kReplySize];
        connection_.receive(bytes, sizeof bytes, deadline, kClosed);
        const ReplyHead head = read_reply(bytes);
        if (head.number != number || head.body_size > kMostReply) {
            throw Lost("the server's bytes are no reply of Gamecore");
        }
        return {head.status, received(static_cast<std::size_t>(head.body_size), deadline)};
    }

  private:
    static constexpr std::uint64_t kMostReply = 1 << 30;
    static constexpr std::size_t kMostKey = 4096;
    static constexpr std::size_t kMostText = 1 << 16;
    static constexpr const char* kClosed = "the server has closed the connection";

    std::string received(std::size_t size, Clock::time_point deadline) {
        std::string bytes(size, '\0');
        connection_.receive(bytes.data(), size, deadline, kClosed);
        return bytes;
    }

    std::string host_, key_, token_;
    Connection connection_;
    std::uint16_t port_;
};

}  // namespace penstock::gamecore
