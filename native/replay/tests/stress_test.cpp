// Four writers and four readers as processes that are killed at random moments. Every row that a reader gets is whole (it
// has a checksum), no process is stuck, and at the end the tree's root is the sum of its leaves.
//
// PENSTOCK_STRESS_S is the number of seconds. For a soak: PENSTOCK_STRESS_S=600 replay_tests stress
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "check.hpp"
#include "processes.hpp"
#include "sampler.hpp"

using namespace penstock::memory;
using namespace penstock::replay;
using namespace penstock::test;
using namespace std::chrono_literals;

namespace {

constexpr std::int64_t writers = 4, readers = 4, slots = 6, steps = 8, lanes = 4, ends = steps * lanes;
constexpr std::size_t all_slots = writers * slots;
constexpr std::size_t height = (steps + 1) * lanes;  // rows of a slot
constexpr std::size_t all_rows = all_slots * height;
constexpr std::size_t batch = 64;
constexpr int n_step = 3;

// Each row holds its step and its lane, and a checksum.
struct Observation {
    std::uint64_t step;  // number of the step in its lane
    std::uint64_t lane;  // number of the lane among all lanes
    std::uint64_t checksum;

    static Observation of(std::uint64_t step, std::uint64_t lane) {
        return {step, lane, (step * 0x9E3779B97F4A7C15U) ^ (lane * 0xC2B2AE3D27D4EB4FU)};
    }
    void check() const { CHECK(checksum == of(step, lane).checksum); }
};

struct Tallies {
    std::atomic<bool> stop;
    pid_t parent;
    std::atomic<std::uint64_t> batches[readers];
    std::atomic<std::uint64_t> pushed[writers];
};

// It also ends if the parent has failed.
bool goes_on(const Tallies& tallies) { return !tallies.stop.load() && getppid() == tallies.parent; }

// Everything in shared memory, in this order.
struct Layout {
    unsigned char* memory;
    std::size_t at = 0;

    unsigned char* take(std::size_t nbytes) {
        unsigned char* const taken = memory + at;
        at += round_to_line(nbytes);
        return taken;
    }
};

struct World {
    explicit World(unsigned char* memory) {
        Layout layout{memory};
        heads = layout.take(Table<>::required(writers));
        tree = layout.take(SumTree<>::required(all_rows));
        tallies = reinterpret_cast<Tallies*>(layout.take(sizeof(Tallies)));
        obs = reinterpret_cast<Observation*>(layout.take(all_rows * sizeof(Observation)));
        reward = reinterpret_cast<float*>(layout.take(all_rows * sizeof(float)));
        valid = layout.take(all_rows);
        terminated = layout.take(all_rows);
        truncated = layout.take(all_rows);
        continues = layout.take(all_slots * lanes);
        finals = reinterpret_cast<Observation*>(layout.take(all_slots * ends * sizeof(Observation)));
        final_count = reinterpret_cast<std::int64_t*>(layout.take(all_slots * sizeof(std::int64_t)));
        final_t = reinterpret_cast<std::int64_t*>(layout.take(all_slots * ends * sizeof(std::int64_t)));
        final_lane = reinterpret_cast<std::int64_t*>(layout.take(all_slots * ends * sizeof(std::int64_t)));
        nbytes = layout.at;
    }

    [[nodiscard]] Rows rows() const {
        // There are no stacks here and no carry, so nothing says where episodes begin.
        return {writers, slots, steps, lanes, ends, true, valid, nullptr, terminated, truncated, reward, continues, nullptr, final_count, final_t, final_lane};
    }

    unsigned char *heads, *tree;
    Tallies* tallies;
    Observation* obs;
    float* reward;
    unsigned char *valid, *terminated, *truncated, *continues;
    Observation* finals;
    std::int64_t *final_count, *final_t, *final_lane;
    std::size_t nbytes;
};

bool is_cut(std::uint64_t step, std::uint64_t lane) { return (step * 7 + lane * 3) % 11 == 0; }

void fill(const World& world, std::int64_t writer, std::uint64_t sequence) {
    const std::size_t slot = static_cast<std::size_t>(writer * slots) + sequence % slots;
    world.final_count[slot] = 0;
    for (std::size_t t = 0; t <= steps; ++t) {
        for (std::size_t lane = 0; lane < lanes; ++lane) {
            const std::size_t row = slot * height + t * lanes + lane;
            const std::uint64_t step = sequence * steps + t;
            const std::uint64_t all_lane = static_cast<std::uint64_t>(writer) * lanes + lane;
            const bool cut = is_cut(step, all_lane);
            world.obs[row] = Observation::of(step, all_lane);
            world.reward[row] = 1.0F;
            world.valid[row] = t < steps;
            world.terminated[row] = 0;
            world.truncated[row] = t < steps && cut;
            world.continues[slot * lanes + lane] = sequence > 0;
            if (t < steps && cut) {
                const std::size_t entry = slot * ends + static_cast<std::size_t>(world.final_count[slot]++);
                world.final_t[entry] = static_cast<std::int64_t>(t);
                world.final_lane[entry] = static_cast<std::int64_t>(lane);
                // As with a source that resets in the same step, the lane's step after the cut is there twice.
                world.finals[entry] = Observation::of(step + 1, all_lane);
            }
        }
    }
}

void set_priorities(const World& world, std::int64_t writer, std::uint64_t sequence) {
    SumTree<> tree(world.tree, all_rows);
    std::array<std::uint64_t, height> priority{};
    std::array<std::size_t, height> touched{};
    for (std::size_t row = 0; row < steps * lanes; ++row) {
        priority[row] = 1 + row * 1000;
    }
    tree.set((static_cast<std::size_t>(writer * slots) + sequence % slots) * height, sequence, priority, touched);
}

void write(const World& world, std::int64_t writer) {
    const auto index = static_cast<std::size_t>(writer);
    Table<> table(world.heads, writers, slots);
    if (const std::uint64_t written = table.written(index); written > 0) {
        set_priorities(world, writer, written - 1);  // its predecessor may have died before it did
    }
    while (goes_on(*world.tallies)) {
        const std::uint64_t sequence = table.written(index);
        CHECK(table.claim(index, sequence));
        fill(world, writer, sequence);
        CHECK(table.push(index, sequence));
        set_priorities(world, writer, sequence);
        world.tallies->pushed[writer].fetch_add(1);
    }
}

struct Batch {
    std::array<Observation, batch> obs{}, next{};
    std::array<float, batch> reward{}, discount{};
    std::array<std::int64_t, batch> index{}, stamp{};

    void check() const {
        for (std::size_t i = 0; i < batch; ++i) {
            obs[i].check();
            next[i].check();
            // Each step has reward 1, so the sum is the number of steps to the next observation.
            const auto n = static_cast<std::uint64_t>(reward[i]);
            CHECK(n >= 1 && n <= n_step && next[i].lane == obs[i].lane && next[i].step == obs[i].step + n);
            CHECK(discount[i] == 1.0F);
            CHECK(obs[i].step / steps == static_cast<std::uint64_t>(stamp[i]));
        }
    }
};

void read(const World& world, std::int64_t reader, std::uint64_t seed) {
    Table<> table(world.heads, writers, slots);
    SumTree<> tree(world.tree, all_rows, best_level().sums);
    const Rows rows = world.rows();
    const Chains chains(rows, n_step, 1.0, 0, 1.0F);
    Sampler uniform(table, rows, chains, nullptr, best_level());
    Sampler prioritised(table, rows, chains, &tree, best_level());
    const Column column{reinterpret_cast<const std::byte*>(world.obs), reinterpret_cast<const std::byte*>(world.finals),
                        sizeof(Observation), 1, false};
    Batch sampled;
    const auto to = [](auto& array) { return reinterpret_cast<std::byte*>(array.data()); };
    const std::array<Item, 6> items{Item{Kind::row, &column, to(sampled.obs)},        {Kind::next, &column, to(sampled.next)},
                                    {Kind::reward, nullptr, to(sampled.reward)},      {Kind::discount, nullptr, to(sampled.discount)},
                                    {Kind::index, nullptr, to(sampled.index)},        {Kind::stamp, nullptr, to(sampled.stamp)}};
    std::array<std::uint64_t, batch> priority{};
    std::array<std::size_t, batch> touched{};
    for (std::uint64_t number = 0; goes_on(*world.tallies); ++number) {
        try {
            Sampler& sampler = number % 2 == 0 ? uniform : prioritised;
            sampler.sample({seed, number, 0}, items, batch, {}, 0.5);
        } catch (const Nothing&) {
            continue;  // at the beginning, or when fast writers have just overwritten all six slots
        }
        sampled.check();
        for (std::size_t i = 0; i < batch; ++i) {
            priority[i] = 1 + (seed + number * i) % 100'000;
        }
        tree.update(sampled.index, sampled.stamp, priority, touched);
        world.tallies->batches[reader].fetch_add(1);
    }
}

double seconds() {
    const char* asked = std::getenv("PENSTOCK_STRESS_S");
    return asked == nullptr ? 6.0 : std::atof(asked);
}

}  // namespace

TEST(stress, writers_and_readers_are_killed) {
    const Shared shared(World(nullptr).nbytes);
    const World world(shared.get());
    world.tallies->parent = getpid();
    std::uint64_t lives = 0;
    const auto begin = [&](std::size_t role) {
        const auto number = static_cast<std::int64_t>(role);
        const std::uint64_t seed = ++lives;
        return start([&] { number < writers ? write(world, number) : read(world, number - writers, seed); });
    };
    std::vector<pid_t> processes;
    for (std::size_t role = 0; role < writers + readers; ++role) {
        processes.push_back(begin(role));
    }
    std::mt19937 chance(7);
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds());
    while (std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(std::chrono::microseconds(chance() % 20'000));
        const std::size_t role = chance() % processes.size();
        kill(processes[role], SIGKILL);
        CHECK(was_killed(reap(processes[role])));
        if (lives % 4 == 0) {
            SumTree<>(world.tree, all_rows).recover();  // while the others work
        }
        processes[role] = begin(role);
    }
    // The processes that were started last still make progress.
    for (std::size_t role = 0; role < processes.size(); ++role) {
        const auto& counted = role < writers ? world.tallies->pushed[role] : world.tallies->batches[role - writers];
        const std::uint64_t before = counted.load();
        const auto latest = std::chrono::steady_clock::now() + 30s;
        while (counted.load() == before) {
            CHECK(std::chrono::steady_clock::now() < latest);
            std::this_thread::sleep_for(1ms);
        }
    }
    world.tallies->stop.store(true);
    std::uint64_t batches = 0;
    for (const pid_t process : processes) {
        CHECK(ended_well(reap(process)));
    }
    for (const auto& count : world.tallies->batches) {
        batches += count.load();
    }
    SumTree<> tree(world.tree, all_rows);
    tree.recover();
    std::uint64_t sum = 0;
    for (std::size_t row = 0; row < all_rows; ++row) {
        sum += tree.leaf(row).priority;
    }
    CHECK(tree.total() == sum);
    std::printf("  %llu processes were started, %llu batches of %zu rows sampled whole\n", static_cast<unsigned long long>(lives),
                static_cast<unsigned long long>(batches), batch);
}
