// Forked processes that share memory, and payloads that carry a checksum.
#pragma once

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <functional>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.hpp"

namespace penstock::test {

class Shared {
  public:
    explicit Shared(std::size_t nbytes)
        : nbytes_(nbytes), memory_(mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
        CHECK(memory_ != MAP_FAILED);
    }
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;
    ~Shared() { munmap(memory_, nbytes_); }
    [[nodiscard]] unsigned char* get() const { return static_cast<unsigned char*>(memory_); }

  private:
    std::size_t nbytes_;
    void* memory_;
};

inline pid_t start(const std::function<void()>& body) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        body();
        _exit(0);
    }
    return child;
}

inline int reap(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0) {
        CHECK(errno == EINTR);
    }
    return status;
}

inline bool was_killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }

inline bool ended_well(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

inline constexpr std::size_t words = 512;

struct Payload {
    std::array<std::uint64_t, words> numbers;
    std::uint64_t checksum;
};

inline std::uint64_t checksum(const Payload& payload) {
    std::uint64_t sum = 14695981039346656037U;
    for (const std::uint64_t number : payload.numbers) {
        sum = (sum ^ number) * 1099511628211U;
    }
    return sum;
}

inline void fill(Payload& payload, std::uint64_t seed) {
    for (std::size_t i = 0; i < words; ++i) {
        payload.numbers[i] = seed * 0x9E3779B97F4A7C15U + i;
    }
    payload.checksum = checksum(payload);
}

}  // namespace penstock::test
