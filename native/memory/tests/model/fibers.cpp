// With _FORTIFY_SOURCE, longjmp may only go up one stack. Here it goes from stack to stack.
#undef _FORTIFY_SOURCE
#include "fibers.hpp"

#include <cstdlib>
#include <ucontext.h>

namespace penstock::model {

namespace {

// makecontext can pass only ints.
Fibers* entering = nullptr;
std::size_t entering_fiber = 0;
ucontext_t maker;

}  // namespace

Fibers::Fibers(std::size_t count, void (*body)(void*), void* argument)
    : fibers_(count), stacks_(new unsigned char[count * stack_bytes]), body_(body), argument_(argument) {
    for (std::size_t fiber = 0; fiber < count; ++fiber) {
        ucontext_t context;
        getcontext(&context);
        context.uc_stack.ss_sp = stacks_.get() + fiber * stack_bytes;
        context.uc_stack.ss_size = stack_bytes;
        context.uc_link = nullptr;
        makecontext(&context, enter, 0);
        entering = this;
        entering_fiber = fiber;
        swapcontext(&maker, &context);
    }
}

void Fibers::enter() { entering->loop(entering_fiber); }

void Fibers::loop(std::size_t fiber) {
    if (_setjmp(fibers_[fiber].start) == 0) {
        setcontext(&maker);
    }
    body_(argument_);
    std::abort();
}

void Fibers::start_from_outside(std::size_t fiber) {
    if (_setjmp(outside_) == 0) {
        go(fiber);
    }
}

void Fibers::go_outside() { _longjmp(outside_, 1); }

void Fibers::swap(std::size_t from, std::size_t to) {
    if (_setjmp(fibers_[from].place) == 0) {
        go(to);
    }
}

void Fibers::go(std::size_t fiber) {
    Fiber& next = fibers_[fiber];
    const bool fresh = next.fresh;
    next.fresh = false;
    _longjmp(fresh ? next.start : next.place, 1);
}

}  // namespace penstock::model
