#include "penstock/memory/rounds.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"

using penstock::memory::Joined;
using penstock::memory::Rounds;
using penstock::memory::Standing;
using penstock::test::Memory;

namespace {

constexpr std::size_t words = 32;
constexpr std::size_t payload_bytes = words * sizeof(std::uint64_t);
constexpr std::chrono::milliseconds nap(20);
constexpr std::chrono::nanoseconds spin(0);

std::uint64_t* payload(unsigned char* memory, std::size_t members, std::size_t member, std::uint64_t round) {
    return reinterpret_cast<std::uint64_t*>(memory + Rounds<>::offset(members, payload_bytes, member, round));
}

std::uint64_t arrive(unsigned char* memory, std::size_t members, std::size_t member, std::uint64_t value) {
    Rounds<> rounds(memory, members);
    std::uint64_t* mine = payload(memory, members, member, rounds.standing().round);
    for (std::size_t i = 0; i < words; ++i) {
        mine[i] = value + i;
    }
    return rounds.arrive(member);
}

}  // namespace

TEST(rounds, the_word_holds_each_part) {
    for (const Standing standing : {Standing{0xfff, 0, 0, 0, false, 0}, Standing{0, 0xfff, 0, 0, false, 0},
                                    Standing{0, 0, 0xfff, 0, false, 0}, Standing{0, 0, 0, 0xfff, false, 0},
                                    Standing{0, 0, 0, 0, true, 0}, Standing{0, 0, 0, 0, false, Standing::rounds - 1}}) {
        const Standing again = Standing::unpack(standing.pack());
        CHECK(again.members == standing.members && again.arrived == standing.arrived && again.last == standing.last);
        CHECK(again.asking == standing.asking && again.begun == standing.begun && again.round == standing.round);
    }
}

TEST(rounds, the_first_round_waits_for_all) {
    const Memory memory(Rounds<>::required(2, payload_bytes));
    Rounds<> rounds(memory.get(), 2);
    CHECK(rounds.join(0, false) == Joined::founded);
    CHECK(arrive(memory.get(), 2, 0, 5) == 0);
    CHECK(!rounds.over(0));
    CHECK(rounds.join(1, false) == Joined::founded);
    CHECK(!rounds.over(0));
    CHECK(arrive(memory.get(), 2, 1, 6) == 0);
    CHECK(rounds.over(0) && rounds.standing().last == 0b11);
}

TEST(rounds, who_is_removed_is_waited_for_no_more) {
    const Memory memory(Rounds<>::required(2, payload_bytes));
    Rounds<> rounds(memory.get(), 2);
    rounds.join(0, false);
    rounds.join(1, false);
    arrive(memory.get(), 2, 0, 0);
    rounds.remove(1);
    CHECK(!rounds.over(0));  // its place is kept until the first round is over
    CHECK(rounds.join(1, false) == Joined::founded);
    arrive(memory.get(), 2, 1, 0);
    CHECK(rounds.over(0));
    CHECK(arrive(memory.get(), 2, 0, 0) == 1);
    rounds.remove(1);
    CHECK(rounds.over(1) && rounds.standing().last == 0b01);
    rounds.remove(1);
    CHECK(arrive(memory.get(), 2, 0, 0) == 2);
    CHECK(rounds.over(2));
}

TEST(rounds, the_first_member_lets_in_who_asks) {
    const Memory memory(Rounds<>::required(3, payload_bytes));
    Rounds<> rounds(memory.get(), 3);
    for (std::size_t member = 0; member < 3; ++member) {
        rounds.join(member, false);
    }
    for (std::size_t member = 0; member < 3; ++member) {
        arrive(memory.get(), 3, member, 0);
    }
    rounds.remove(0);
    CHECK(rounds.join(0, true) == Joined::waiting);  // anew, but there are other members
    CHECK(rounds.asking(2) == 0 && rounds.admit(2) == 0);
    CHECK(rounds.asking(1) == 0b001);
    arrive(memory.get(), 3, 2, 0);
    CHECK(rounds.admit(1) == 0b001);
    CHECK(rounds.join(0, true) == Joined::admitted);
    arrive(memory.get(), 3, 1, 0);
    CHECK(!rounds.over(1));  // a round that was under way waits for the new member
    CHECK(arrive(memory.get(), 3, 0, 0) == 1);
    CHECK(rounds.over(1) && rounds.standing().last == 0b111);
}

TEST(rounds, where_all_have_gone_only_one_who_may_goes_on) {
    const Memory memory(Rounds<>::required(2, payload_bytes));
    Rounds<> rounds(memory.get(), 2);
    for (std::size_t member = 0; member < 2; ++member) {
        rounds.join(member, false);
    }
    for (std::size_t member = 0; member < 2; ++member) {
        arrive(memory.get(), 2, member, 0);
    }
    rounds.remove(0);
    rounds.remove(1);
    CHECK(rounds.join(1, false) == Joined::waiting);
    CHECK(rounds.join(0, true) == Joined::founded);
    CHECK(rounds.asking(0) == 0b10 && rounds.admit(0) == 0b10);
    CHECK(rounds.join(1, false) == Joined::admitted);
}

TEST(rounds, payloads_are_whole_and_all_read_the_same) {
    constexpr std::size_t members = 3;
    constexpr std::uint64_t count = 3000;
    const Memory memory(Rounds<>::required(members, payload_bytes));
    std::array<std::vector<std::uint64_t>, members> found;
    const auto meet = [&](std::size_t member) {
        Rounds<> rounds(memory.get(), members);
        CHECK(rounds.join(member, false) == Joined::founded);
        for (std::uint64_t number = 0; number < count; ++number) {
            const std::uint64_t round = arrive(memory.get(), members, member, 1000 * number + member);
            for (std::uint32_t seen = rounds.word(member); !rounds.over(round); seen = rounds.word(member)) {
                rounds.sleep(member, seen, nap, spin);
            }
            std::uint64_t sum = 0;
            const std::uint64_t last = rounds.standing().last;
            for (std::size_t other = 0; other < members; ++other) {
                if ((last & Standing::bit(other)) != 0) {
                    const std::uint64_t* theirs = payload(memory.get(), members, other, round);
                    for (std::size_t i = 0; i < words; ++i) {
                        CHECK(theirs[i] == 1000 * number + other + i);
                    }
                    sum += theirs[0];
                }
            }
            found[member].push_back(sum);
            if (member == 2 && number == count / 2) {
                break;
            }
        }
        rounds.remove(member);
    };
    std::vector<std::thread> threads;
    for (std::size_t member = 0; member < members; ++member) {
        threads.emplace_back(meet, member);
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    CHECK(found[0] == found[1] && found[0].size() == count && found[2].size() == count / 2 + 1);
}
