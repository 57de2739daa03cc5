// A member of rounds that is killed at each place in turn; the parent reaps, removes it, and plays the other member.
#include <array>
#include <cstdint>
#include <string>

#include "check.hpp"
#include "kills.hpp"
#include "penstock/memory/rounds.hpp"

using namespace penstock::memory;
using namespace penstock::test;

namespace {

constexpr std::size_t members = 2;
constexpr std::size_t payload_bytes = few * sizeof(std::uint64_t);

template <template <class> class Atomic>
std::uint64_t take_part(unsigned char* memory, std::size_t member, std::uint64_t value) {
    Rounds<Atomic> rounds(memory, members);
    const std::uint64_t round = rounds.standing().round;
    write_payload(reinterpret_cast<std::uint64_t*>(memory + Rounds<>::offset(members, payload_bytes, member, round)), value);
    CHECK(rounds.arrive(member) == round);
    return round;
}

const std::uint64_t* payload(unsigned char* memory, std::size_t member, std::uint64_t round) {
    return reinterpret_cast<const std::uint64_t*>(memory + Rounds<>::offset(members, payload_bytes, member, round));
}

}  // namespace

TEST(kills, a_member_of_rounds) {
    const auto prepare = [](unsigned char* memory) {
        Rounds<> rounds(memory, members);
        CHECK(rounds.join(1, false) == Joined::founded);
        take_part<std::atomic>(memory, 1, 100);
    };
    const auto script = [](unsigned char* memory) {
        Rounds<Fallible> rounds(memory, members);
        rounds.join(0, true);
        take_part<Fallible>(memory, 0, 200);
        CHECK(rounds.over(0));
        take_part<Fallible>(memory, 0, 300);
        rounds.remove(0);
        rounds.join(0, true);
        rounds.admit(0);
    };
    const auto check = [](unsigned char* memory, const std::string&) {
        Rounds<> rounds(memory, members);
        rounds.remove(0);
        rounds.remove(0);
        Standing now = rounds.standing();
        CHECK(now.members == 0b10 && now.asking == 0 && now.round == (now.begun ? 1U : 0U));
        if (now.begun) {  // it had brought its whole payload before
            CHECK(now.last == 0b11 && holds(payload(memory, 0, 0), 200) && holds(payload(memory, 1, 0), 100));
            CHECK(rounds.join(0, true) == Joined::waiting && rounds.admit(1) == 0b01);
            CHECK(rounds.join(0, true) == Joined::admitted);
            take_part<std::atomic>(memory, 1, 400);
        } else {
            CHECK(rounds.join(0, true) == Joined::founded);
        }
        const std::uint64_t round = take_part<std::atomic>(memory, 0, 500);
        CHECK(rounds.over(round) && rounds.standing().last == 0b11 && holds(payload(memory, 0, round), 500));
        CHECK(holds(payload(memory, 1, round), round == 0 ? 100 : 400));
    };
    CHECK(kill_at_each_point(Rounds<>::required(members, payload_bytes), prepare, script, check) > 30);
}
