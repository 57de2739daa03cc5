// A TCP connection whose calls end at a deadline. Knows no frames. POSIX sockets.
#pragma once

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "penstock/gamecore/error.hpp"

namespace penstock::gamecore {

using Clock = std::chrono::steady_clock;

class Connection {
  public:
    Connection() = default;
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;
    ~Connection() { close(); }

    [[nodiscard]] bool is_open() const { return descriptor_ >= 0; }

    void close() {
        if (descriptor_ >= 0) {
            ::close(descriptor_);
            descriptor_ = -1;
        }
        begin_ = end_ = 0;
    }

    // Connects to the first address of the host that answers. Throws Lost.
    void open(const std::string& host, std::uint16_t port, Clock::time_point deadline) {
        close();
        addrinfo wanted{};
        wanted.ai_family = AF_UNSPEC;
        wanted.ai_socktype = SOCK_STREAM;
        addrinfo* found = nullptr;
        if (const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found); error != 0) {
            throw Lost("no address of " + host + ": " + ::gai_strerror(error));
        }
        const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, &::freeaddrinfo);
        std::string why = "no address";
        for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
            if (try_address(*one, deadline, why)) {
                return;
            }
        }
        throw Lost("no server at " + host + ":" + std::to_string(port) + ": " + why);
    }

    // Sends all bytes. Throws Lost.
    void send(std::string_view bytes, Clock::time_point deadline) {
        while (!bytes.empty()) {
            const ssize_t count = ::send(descriptor_, bytes.data(), bytes.size(), kNoSignal);
            if (count >= 0) {
                bytes.remove_prefix(static_cast<std::size_t>(count));
            } else {
                wait_or_throw(POLLOUT, deadline);
            }
        }
    }

    // Fills `size` bytes. Throws Lost, with the given words if the server has closed the connection.
    void receive(char* to, std::size_t size, Clock::time_point deadline, const char* closed) {
        for (;;) {
            const std::size_t taken = std::min(size, end_ - begin_);
            std::copy_n(inbox_.data() + begin_, taken, to);
            begin_ += taken;
            to += taken;
            size -= taken;
            if (size == 0) {
                return;
            }
            // The inbox is empty. What is larger than it goes straight to its place.
            if (size >= inbox_.size()) {
                const std::size_t count = arrived(to, size, deadline, closed);
                to += count;
                size -= count;
            } else {
                begin_ = 0;
                end_ = arrived(inbox_.data(), inbox_.size(), deadline, closed);
            }
        }
    }

  private:
#ifdef MSG_NOSIGNAL
    static constexpr int kNoSignal = MSG_NOSIGNAL;
#else
    static constexpr int kNoSignal = 0;
#endif

    static std::string text_of(int error) { return std::generic_category().message(error); }

    bool try_address(const addrinfo& address, Clock::time_point deadline, std::string& why) {
        descriptor_ = ::socket(address.ai_family, address.ai_socktype, address.ai_protocol);
        if (descriptor_ < 0) {
            why = text_of(errno);
            return false;
        }
        const int one = 1;
        ::setsockopt(descriptor_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
#ifdef SO_NOSIGPIPE
        ::setsockopt(descriptor_, SOL_SOCKET, SO_NOSIGPIPE, &one, sizeof one);
#endif
        ::fcntl(descriptor_, F_SETFD, FD_CLOEXEC);
        ::fcntl(descriptor_, F_SETFL, ::fcntl(descriptor_, F_GETFL) | O_NONBLOCK);
        int error = ::connect(descriptor_, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
        if (error == EINPROGRESS || error == EINTR) {
            error = ETIMEDOUT;
            if (is_ready(POLLOUT, deadline)) {
                socklen_t size = sizeof error;
                ::getsockopt(descriptor_, SOL_SOCKET, SO_ERROR, &error, &size);
            }
        }
        if (error == 0) {
            return true;
        }
        why = text_of(error);
        close();
        return false;
    }

    // Some bytes, at least one. A reply is seldom there already, so the wait comes first: it saves a call in vain.
    std::size_t arrived(char* to, std::size_t size, Clock::time_point deadline, const char* closed) {
        if (!is_ready(POLLIN, deadline)) {
            throw Lost("no reply in time");
        }
        for (;;) {
            const ssize_t count = ::recv(descriptor_, to, size, 0);
            if (count > 0) {
                return static_cast<std::size_t>(count);
            }
            if (count == 0) {
                throw Lost(closed);
            }
            wait_or_throw(POLLIN, deadline);
        }
    }

    // Waits until the socket can be read or written. False: the deadline has passed.
    [[nodiscard]] bool is_ready(short events, Clock::time_point deadline) const {
        for (;;) {
            const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
            // Rounded up, so that it does not spin in the last millisecond.
            const auto wait = static_cast<int>(std::clamp<std::int64_t>(left + 1, 0, 1 << 30));
            pollfd entry{descriptor_, events, 0};
            const int count = ::poll(&entry, 1, left < 0 ? 0 : wait);
            if (count > 0) {
                return true;
            }
            if (count == 0 && Clock::now() >= deadline) {
                return false;
            }
            if (count < 0 && errno != EINTR) {
                throw Lost(text_of(errno));
            }
        }
    }

    void wait_or_throw(short events, Clock::time_point deadline) const {
        if (errno == EINTR) {
            return;
        }
        if (errno != EAGAIN && errno != EWOULDBLOCK) {
            throw Lost(text_of(errno));
        }
        if (!is_ready(events, deadline)) {
            throw Lost("no reply in time");
        }
    }

    int descriptor_ = -1;
    std::array<char, 4096> inbox_{};  // bytes that have arrived beyond those asked for, from begin_ to end_
    std::size_t begin_ = 0, end_ = 0;
};

}  // namespace penstock::gamecore
