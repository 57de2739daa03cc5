// Four writers and four readers at once, on a table and its tree. Rows are sampled by priority, copied and checked, and
// their priorities are changed. Relaxed words stand for plain memory, in which ThreadSanitizer would report races.
#include <atomic>
#include <array>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "check.hpp"
#include "penstock/memory/table.hpp"
#include "penstock/replay/sum_tree.hpp"

using penstock::memory::Table;
using penstock::replay::SumTree;
using penstock::test::Memory;

namespace {

constexpr std::size_t writers = 4;
constexpr std::size_t slots = 5;
constexpr std::size_t rows = 8;   // of a slot
constexpr std::size_t words = 4;  // of a row
constexpr std::uint64_t most = 800;
constexpr std::size_t capacity = writers * slots * rows;
constexpr std::size_t tree_at = Table<>::required(writers);
constexpr std::size_t payload_at = tree_at + SumTree<>::required(capacity);
constexpr std::size_t nbytes = payload_at + capacity * words * sizeof(std::uint64_t);

using Word = std::atomic<std::uint64_t>;

struct Shared {
    explicit Shared(unsigned char* memory)
        : table(memory, writers, slots), tree(memory + tree_at, capacity), payload(reinterpret_cast<Word*>(memory + payload_at)) {}
    Table<> table;
    SumTree<> tree;
    Word* payload;  // [writers * slots, rows, words]
};

std::uint64_t value(std::size_t row, std::uint64_t sequence, std::size_t word) { return (sequence << 20) + row * words + word; }

void write(unsigned char* memory, std::size_t writer) {
    Shared shared(memory);
    std::array<std::size_t, rows> touched{};
    std::mt19937_64 chance(writer);
    for (std::uint64_t sequence = 0; sequence < most; ++sequence) {
        CHECK(shared.table.claim(writer, sequence));
        const std::size_t first = (writer * slots + sequence % slots) * rows;
        for (std::size_t row = first; row < first + rows; ++row) {
            for (std::size_t word = 0; word < words; ++word) {
                shared.payload[row * words + word].store(value(row, sequence, word), std::memory_order_relaxed);
            }
        }
        CHECK(shared.table.push(writer, sequence));
        std::array<std::uint64_t, rows> priority{};
        for (std::uint64_t& one : priority) {
            one = chance() % 1000;
        }
        shared.tree.set(first, sequence, priority, touched);
        if (sequence % 4 == 0) {
            std::this_thread::yield();
        }
    }
}

// Copies a row. True if the row was whole at the time of the copy.
bool copied(Shared& shared, std::size_t row, std::uint64_t tag, std::uint64_t& sequence) {
    const std::size_t writer = row / (slots * rows);
    const std::size_t slot = row / rows % slots;
    const std::uint64_t written = shared.table.written(writer);
    if (written <= slot) {
        return false;
    }
    sequence = (written - 1 - slot) / slots * slots + slot;
    if (SumTree<>::tag_of(sequence) != tag) {
        return false;
    }
    std::array<std::uint64_t, words> copy{};
    for (std::size_t word = 0; word < words; ++word) {
        copy[word] = shared.payload[row * words + word].load(std::memory_order_relaxed);
    }
    if (sequence < shared.table.oldest(writer)) {
        return false;
    }
    for (std::size_t word = 0; word < words; ++word) {
        CHECK(copy[word] == value(row, sequence, word));
    }
    return true;
}

std::size_t read(unsigned char* memory, unsigned seed, const std::atomic<bool>& done) {
    Shared shared(memory);
    std::mt19937_64 chance(seed);
    std::size_t whole = 0;
    std::vector<std::size_t> touched(16);
    while (!done.load()) {
        const std::uint64_t total = shared.tree.total();
        if (total == 0) {
            continue;
        }
        std::vector<std::uint64_t> points(16);
        std::vector<std::size_t> found(16);
        std::vector<std::int64_t> sampled, stamps;
        std::vector<std::uint64_t> priority;
        for (std::uint64_t& point : points) {
            point = chance() % total;
        }
        shared.tree.find(points, found);
        for (const std::size_t row : found) {
            std::uint64_t sequence = 0;
            if (row != SumTree<>::nowhere && copied(shared, row, shared.tree.leaf(row).tag, sequence)) {
                sampled.push_back(static_cast<std::int64_t>(row));
                stamps.push_back(static_cast<std::int64_t>(sequence));
                priority.push_back(1 + chance() % 1000);
                ++whole;
            }
        }
        shared.tree.update(sampled, stamps, priority, touched);
    }
    return whole;
}

}  // namespace

TEST(threads, four_writers_and_four_readers) {
    const Memory memory(nbytes);
    std::atomic<bool> done{false};
    std::array<std::size_t, 4> whole{};
    std::vector<std::thread> reading, writing;
    for (unsigned i = 0; i < 4; ++i) {
        reading.emplace_back([&, i] { whole[i] = read(memory.get(), i, done); });
        writing.emplace_back([&, i] { write(memory.get(), i); });
    }
    for (std::thread& writer : writing) {
        writer.join();
    }
    done.store(true);
    std::size_t all = 0;
    for (unsigned i = 0; i < 4; ++i) {
        reading[i].join();
        all += whole[i];
    }
    CHECK(all > 0);
    const SumTree<> tree(memory.get() + tree_at, capacity);
    std::uint64_t sum = 0;
    for (std::size_t row = 0; row < capacity; ++row) {
        sum += tree.leaf(row).priority;
    }
    CHECK(tree.total() == sum);  // no process died, so sums are exact without a recovery
}
