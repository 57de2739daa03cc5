// Tests of the simulation itself: it shows all outcomes that C++ allows, and no others.
#include <array>
#include <atomic>
#include <functional>

#include "search.hpp"
#include "sim_atomic.hpp"

namespace penstock::model {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;
constexpr auto acq_rel = std::memory_order_acq_rel;
constexpr auto seq_cst = std::memory_order_seq_cst;

using Words = std::array<SimAtomic<std::uint64_t>, 8>;

struct Memory {
    Words& words;
    Plain plain;
    std::array<std::uint64_t, 4> got{};
};

using Body = std::function<void(Memory&)>;

class Litmus final : public Scenario {
  public:
    Litmus(unsigned char* memory, const std::vector<Body>& bodies, const Body& after)
        : memory_{*reinterpret_cast<Words*>(memory), {}}, bodies_(bodies), after_(after) {}

    void live(std::size_t process, unsigned life) override {
        if (life == 0) {
            bodies_[process](memory_);
        }
    }
    void finish() override { after_(memory_); }

  private:
    Memory memory_;
    const std::vector<Body>& bodies_;
    const Body& after_;
};

Setting litmus(const char* name, const std::vector<Body>& bodies, const Body& after, unsigned mortal = 0) {
    return {name, 64, bodies.size(), mortal, {3, 3, 1, 6},
            [bodies, after](unsigned char* memory) { return std::make_unique<Litmus>(memory, bodies, after); }};
}

Setting message(const char* name, std::memory_order store, std::memory_order load) {
    return litmus(name,
                  {[=](Memory& at) {
                       at.words[0].store(1, relaxed);
                       at.words[1].store(1, store);
                   },
                   [=](Memory& at) {
                       at.got[0] = at.words[1].load(load);
                       at.got[1] = at.words[0].load(relaxed);
                   }},
                  [](Memory& at) { HOLDS(at.got[0] == 0 || at.got[1] == 1); });
}

Setting store_then_load(const char* name, std::memory_order store, std::memory_order load) {
    const auto body = [=](std::size_t own) {
        return [=](Memory& at) {
            at.words[own].store(1, store);
            at.got[own] = at.words[1 - own].load(load);
        };
    };
    return litmus(name, {body(0), body(1)}, [](Memory& at) { HOLDS(at.got[0] + at.got[1] > 0); });
}

Setting two_writers_two_readers(const char* name, std::memory_order load) {
    const auto reader = [=](std::size_t first) {
        return [=](Memory& at) {
            at.got[2 * first] = at.words[first].load(load);
            at.got[2 * first + 1] = at.words[1 - first].load(load);
        };
    };
    return litmus(name,
                  {[](Memory& at) { at.words[0].store(1); }, [](Memory& at) { at.words[1].store(1); }, reader(0),
                   reader(1)},
                  [](Memory& at) { HOLDS(!(at.got[0] == 1 && at.got[1] == 0 && at.got[2] == 1 && at.got[3] == 0)); });
}

Setting plain_message(const char* name, std::memory_order store, std::memory_order load) {
    return litmus(name,
                  {[=](Memory& at) {
                       at.plain.store(1);
                       at.words[0].store(1, store);
                   },
                   [](Memory& at) {
                       std::uint64_t one = 1;
                       at.words[0].compare_exchange_strong(one, 2, relaxed, relaxed);
                   },
                   [=](Memory& at) {
                       if (at.words[0].load(load) == 2) {
                           HOLDS(at.plain.load() == 1);
                       }
                   }},
                  [](Memory&) {});
}

Setting death(const char* name, std::memory_order first, std::memory_order second) {
    return litmus(name,
                  {[=](Memory& at) {
                       at.words[0].store(1, first);
                       at.words[1].store(1, second);
                   }},
                  [](Memory& at) { HOLDS(at.words[0].load() >= at.words[1].load()); }, 0b1);
}

}  // namespace

TEST(litmus, a_message_needs_release_and_acquire) {
    holds(message("message, release and acquire", release, acquire));
    fails(message("message, relaxed store", relaxed, acquire));
    fails(message("message, relaxed load", release, relaxed));
}

TEST(litmus, a_store_passes_a_load_but_for_seq_cst) {
    holds(store_then_load("store then load, seq_cst", seq_cst, seq_cst));
    fails(store_then_load("store then load, release and acquire", release, acquire));
}

TEST(litmus, readers_agree_on_an_order_with_seq_cst) {
    holds(two_writers_two_readers("two writers two readers, seq_cst", seq_cst));
    fails(two_writers_two_readers("two writers two readers, acquire", acquire));
}

TEST(litmus, one_place_never_goes_backwards) {
    holds(litmus("one place",
                 {[](Memory& at) {
                      at.words[0].store(1, relaxed);
                      at.words[0].store(2, relaxed);
                  },
                  [](Memory& at) {
                      at.got[0] = at.words[0].load(relaxed);
                      at.got[1] = at.words[0].load(relaxed);
                  }},
                 [](Memory& at) { HOLDS(at.got[1] >= at.got[0]); }));
}

TEST(litmus, an_exchange_carries_a_release_on) {
    holds(plain_message("plain message, release and acquire", release, acquire));
    fails(plain_message("plain message, relaxed store", relaxed, acquire));
    fails(plain_message("plain message, relaxed load", release, relaxed));
}

TEST(litmus, sums_are_exact) {
    const Body add = [](Memory& at) { at.words[0].fetch_add(1, relaxed); };
    holds(litmus("sums, fetch_add", {add, add, add}, [](Memory& at) { HOLDS(at.words[0].load() == 3); }));
    const Body exchange = [](Memory& at) {
        std::uint64_t seen = at.words[0].load(relaxed);
        while (!at.words[0].compare_exchange_strong(seen, seen + 1, acq_rel, relaxed)) {
        }
    };
    holds(litmus("sums, compare and exchange", {exchange, exchange},
                 [](Memory& at) { HOLDS(at.words[0].load() == 2); }));
}

TEST(litmus, a_death_may_lose_what_nothing_released) {
    holds(death("death, released by the second store", relaxed, release));
    fails(death("death, relaxed", relaxed, relaxed));
    fails(death("death, a release holds back only what comes before it", release, relaxed));
}

}  // namespace penstock::model
