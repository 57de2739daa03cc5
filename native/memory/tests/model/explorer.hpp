// Runs a scenario under one schedule after another. Its processes are fibers. A fiber can be interrupted, or die, only
// right before an atomic operation or a store into plain memory. The schedule chooses which fiber goes on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <source_location>
#include <string>

#include "../check.hpp"
#include "choices.hpp"
#include "fibers.hpp"
#include "mutation.hpp"
#include "places.hpp"

namespace penstock::model {

// How far a schedule may deviate. Without deviations the processes run one after the other, all loads return the newest
// values, and no process dies.
struct Bounds {
    unsigned preemptions;
    unsigned stale;  // loads that return an older value
    unsigned deaths;
    unsigned together;  // of all three
};

// Two to four processes in shared memory. A scenario is constructed anew for each schedule. Beside the simulated memory it
// keeps what it needs for its checks. `live` may be abandoned anywhere, so it must own no resources.
class Scenario {
  public:
    virtual ~Scenario() = default;
    // The body of a process. After its death the process lives again, with the next number. Recover first, then go on.
    virtual void live(std::size_t process, unsigned life) = 0;
    // Checks what must hold when all processes have ended.
    virtual void finish() = 0;
};

struct Setting {
    const char* name;
    std::size_t nbytes;
    std::size_t processes;
    unsigned mortal;  // a bit for each process that may die
    Bounds bounds;    // of the exhaustive part
    std::function<std::unique_ptr<Scenario>(unsigned char* memory)> make;
};

struct Violation {
    std::string text;
    Schedule schedule;
    std::vector<std::string> steps;  // every operation up to there
};

class Explorer {
  public:
    // A schedule with more steps than this waits without end.
    static constexpr unsigned most_steps = 600;

    explicit Explorer(const Setting& setting);
    Explorer(const Explorer&) = delete;
    Explorer& operator=(const Explorer&) = delete;
    ~Explorer() { current_explorer = nullptr; }

    // Runs one schedule. Returns the error, if there was one.
    std::optional<std::string> run(Choices& choices, const Bounds& bounds);

    // For the simulated types.
    std::size_t before(const void* word, const char* operation, const std::source_location& where,
                       std::memory_order& order, bool& left_out);
    void after(const char* text, std::size_t place, std::uint64_t value, std::memory_order order);
    void point();
    void point_of_death();
    void sleep_while(const void* word, std::uint64_t seen);
    void wake(const void* word);
    [[noreturn]] void violate(std::string text);
    Places& places() { return places_; }
    [[nodiscard]] std::size_t process() const { return current_; }

    // For scenarios: there is nothing to do until another process stores something. False if no other process ever will.
    bool idle();

    std::optional<Mutation> mutation;
    std::set<Site>* sites = nullptr;              // if set, gets each operation that is met
    std::vector<std::string>* trace = nullptr;    // if set, gets a line for each operation

    static inline Explorer* current_explorer = nullptr;

  private:
    static constexpr std::size_t outside = max_processes - 1;
    static constexpr std::size_t most_lives = 4;
    enum class State { ready, idle, asleep, ended };
    struct Process {
        State state;
        unsigned life;
        std::uint64_t looking_since;  // number of stores when it last began to look for work
        bool in_vain;
        std::size_t asleep_on;
    };
    struct Failed {
        std::string text;
    };

    static void body(void* self);
    void prepare(std::size_t process);
    [[nodiscard]] bool runnable(std::size_t process) const;
    // Finds the processes that can go on, beginning with `first`. Returns their number.
    std::size_t candidates(std::array<std::size_t, max_processes>& found, std::size_t first) const;
    void make_current(std::size_t process);
    void switch_to(std::size_t process);
    // The running process cannot go on. Another one does; this is no preemption.
    void leave();
    void die();
    [[nodiscard]] bool may_die() const;
    [[nodiscard]] bool may_preempt() const { return left_.preemptions > 0 && left_.together > 0; }
    void preempt() {
        --left_.preemptions;
        --left_.together;
    }
    [[nodiscard]] std::size_t fiber(std::size_t process) const {
        return process * most_lives + processes_[process].life;
    }

    const Setting& setting_;
    std::unique_ptr<unsigned char, test::Free> memory_;
    Places places_;
    std::unique_ptr<Scenario> scenario_;
    Choices* choices_ = nullptr;
    Fibers fibers_;
    std::array<Process, max_processes> processes_{};
    std::size_t current_ = outside;
    unsigned steps_ = 0;
    Bounds left_{};
    std::optional<std::string> violation_;
};

inline std::string at_line(const char* file, int line, const char* condition) {
    return std::string(file) + ":" + std::to_string(line) + ": " + condition;
}

inline Explorer& explorer() { return *Explorer::current_explorer; }

}  // namespace penstock::model

#define HOLDS(condition)                                                                   \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            ::penstock::model::explorer().violate(::penstock::model::at_line(__FILE__, __LINE__, #condition)); \
        }                                                                                  \
    } while (false)
