// Tools of these tests: TEST(suite, name) { CHECK(...); }, zeroed memory, and deaths at fault points.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "penstock/memory/fault.hpp"

namespace penstock::test {

struct Test {
    const char* suite;
    const char* name;
    void (*run)();
};

inline std::vector<Test>& tests() {
    static std::vector<Test> all;
    return all;
}

struct Registered {
    Registered(const char* suite, const char* name, void (*run)()) { tests().push_back({suite, name, run}); }
};

// It throws no exception, because a thread or a forked process that fails must fail the test as well.
[[noreturn]] inline void fail(const char* file, int line, const char* text) {
    std::fprintf(stderr, "%s:%d: failed: %s\n", file, line, text);
    std::fflush(stderr);
    std::_Exit(1);
}

struct Free {
    void operator()(unsigned char* memory) const { std::free(memory); }
};

// Zeroed memory that starts at a cache line, like a new segment.
class Memory {
  public:
    explicit Memory(std::size_t nbytes) : bytes_(static_cast<unsigned char*>(std::aligned_alloc(64, (nbytes + 63) / 64 * 64))) {
        std::memset(bytes_.get(), 0, nbytes);
    }
    [[nodiscard]] unsigned char* get() const { return bytes_.get(); }

  private:
    std::unique_ptr<unsigned char, Free> bytes_;
};

// Thrown at a fault point. The operation ends at once, as if its process died. No structure cleans up.
struct Died {};

inline thread_local int points_left = 0;
inline thread_local std::string last_point;

inline void die_at_last_point(const char* name) {
    if (points_left-- == 0) {
        last_point = name;
        throw Died{};
    }
}

// Runs the script on new memory again and again. It dies at its first fault point, then at its second, and so on. Calls
// check(memory, name of the point) after each death. Returns the number of points.
template <class Script, class Check>
int die_at_each_point(std::size_t nbytes, Script script, Check check) {
    for (int point = 0;; ++point) {
        const Memory memory(nbytes);
        points_left = point;
        memory::fault_hook = die_at_last_point;
        bool died = false;
        try {
            script(memory.get());
        } catch (const Died&) {
            died = true;
        }
        memory::fault_hook = nullptr;
        if (!died) {
            return point;
        }
        check(memory.get(), last_point);
    }
}

}  // namespace penstock::test

#define CHECK(condition)                                         \
    do {                                                         \
        if (!(condition)) {                                      \
            ::penstock::test::fail(__FILE__, __LINE__, #condition); \
        }                                                        \
    } while (false)

#define TEST(suite, name)                                                             \
    static void suite##_##name();                                                     \
    static const ::penstock::test::Registered registered_##suite##_##name(#suite, #name, suite##_##name); \
    static void suite##_##name()
