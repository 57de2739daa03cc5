// One agent's session: requests that wait for their replies. Connects, and connects again. For one thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "penstock/gamecore/delta.hpp"
#include "penstock/gamecore/error.hpp"
#include "penstock/gamecore/frames.hpp"
#include "penstock/gamecore/line.hpp"
#include "penstock/gamecore/options.hpp"

namespace penstock::gamecore {

class Session {
  public:
    Session(std::string host, std::uint16_t port, std::string key, std::string token, Options options)
        : options_(options), line_(std::move(host), port, std::move(key), std::move(token)) {}

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
                    end_former();
                }
                ask(Kind::start, {});
                is_started_ = true;
                return;
            } catch (const Refused& refused) {
                is_started_ = refused.status() == kExists;
                if (!may_begin_later(refused.status()) || Clock::now() > until || gives_up_) {
                    throw;
                }
            } catch (const Lost&) {
                if (Clock::now() > until || gives_up_) {
                    throw;
                }
            }
            if (!is_started_) {
                std::this_thread::sleep_for(pause_after(tries));
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

    static constexpr int kBaseMissing = 412;

    // Ends the episode that is open. The server may have ended it by itself.
    void end_former() {
        is_started_ = false;
        try {
            ask(Kind::stop, {});
        } catch (const Refused& refused) {
            if (refused.status() != kNoSession) {
                throw;
            }
        }
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
            if (line_.connect(deadline)) {
                has_base_ = false;
            }
            try {
                return exchange(kind, body, deadline);
            } catch (const BaseMissing&) {
                // There is no base now, so this time a key frame is sent.
                return exchange(kind, body, deadline);
            }
        } catch (const Lost&) {
            line_.close();
            throw;
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
        line_.send(request_, deadline);
        std::string reply = replied(deadline);
        if (is_kept) {
            std::swap(base_, asked_);
            has_base_ = true;
        }
        return reply;
    }

    std::string replied(Clock::time_point deadline) {
        auto [status, body] = line_.reply(number_, deadline);
        if (status == kBaseMissing && has_base_) {
            has_base_ = false;
            throw BaseMissing{};
        }
        if (status != kOk) {
            throw Refused(status, body);
        }
        return std::move(body);
    }

    Options options_;
    Line line_;
    std::string name_;
    std::uint64_t number_ = 0;
    std::string request_;
    Base base_;   // the latest tick that the server has answered
    Base asked_;  // the tick that waits for its answer
    bool has_base_ = false;
    bool is_started_ = false;
    std::atomic<bool> gives_up_{false};
};

}  // namespace penstock::gamecore
