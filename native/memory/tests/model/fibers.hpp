// Stacks between which control moves. A stack may also be left for ever. After they are made, a move needs no system call.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <memory>
#include <vector>

namespace penstock::model {

class Fibers {
  public:
    // Each fiber calls body(argument), which never returns.
    Fibers(std::size_t count, void (*body)(void*), void* argument);

    // The next move to this fiber begins the body from its start, wherever the fiber was before.
    void prepare(std::size_t fiber) { fibers_[fiber].fresh = true; }

    // Call it from outside the fibers. It returns after go_outside().
    void start_from_outside(std::size_t fiber);
    [[noreturn]] void go_outside();

    void swap(std::size_t from, std::size_t to);
    [[noreturn]] void go(std::size_t fiber);

  private:
    static constexpr std::size_t stack_bytes = std::size_t{64} << 10;
    struct Fiber {
        std::jmp_buf start;  // where its body is called
        std::jmp_buf place;  // where it was left
        bool fresh;
    };

    static void enter();
    void loop(std::size_t fiber);

    std::vector<Fiber> fibers_;
    std::unique_ptr<unsigned char[]> stacks_;
    void (*body_)(void*);
    void* argument_;
    std::jmp_buf outside_{};
};

}  // namespace penstock::model
