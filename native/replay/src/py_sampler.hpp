// The Python class of samplers: it checks the arrays of a table and of minibatches.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bind_tree.hpp"
#include "buffer.hpp"
#include "sampler.hpp"

namespace penstock::replay {

namespace nb = nanobind;
using memory::raise;

// A C-contiguous array. Its dtype is compared by identity: NumPy has one object for each dtype.
class View {
  public:
    View(nb::handle source, int access) : source_(nb::borrow(source)) {
        if (PyObject_GetBuffer(source.ptr(), &view_, access) != 0) throw nb::python_error();
    }
    View(const View&) = delete;
    View& operator=(const View&) = delete;
    View(View&& other) noexcept : source_(other.source_), view_(std::exchange(other.view_, Py_buffer{})) {}
    View& operator=(View&&) = delete;
    ~View() { PyBuffer_Release(&view_); }

    [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(view_.buf); }
    [[nodiscard]] std::vector<std::int64_t> shape() const { return {view_.shape, view_.shape + view_.ndim}; }
    [[nodiscard]] std::size_t item_nbytes() const { return static_cast<std::size_t>(view_.itemsize); }
    [[nodiscard]] nb::object dtype() const { return source_.attr("dtype"); }
    [[nodiscard]] nb::handle source() const { return source_; }

  private:
    nb::object source_;
    Py_buffer view_{};
};

// Field, number of frames, and whether zeros stand for the frames before an episode's first.
using Stacks = std::vector<std::tuple<std::string, int, bool>>;

using Before = std::optional<std::vector<std::uint64_t>>;

// An array that a batch may hold under a name.
struct Offered {
    Kind kind;
    const Column* column;
    std::vector<std::int64_t> shape;  // of one row
    nb::object dtype;
    bool once = false;  // a batch of sequences holds one of it for each sequence
};

// A batch's arrays after the check. If a caller passes the same arrays again, they are not checked again.
struct Bound {
    std::vector<std::pair<nb::object, View>> arrays;  // name, array
    std::vector<Item> items;
    std::vector<Item> once;   // of sequences: arrays [m, ...]
    std::size_t leading = 1;  // dimensions before a row's: [m], or [m, length] of sequences
    std::size_t length = 1;
    std::size_t m = 0;

    [[nodiscard]] bool is(const nb::dict& out, std::size_t dimensions) const {
        if (out.size() != arrays.size() || dimensions != leading) return false;
        auto known = arrays.begin();
        for (const auto& [name, array] : out) {
            if (!name.is(known->first) || !array.is(known->second.source())) return false;
            ++known;
        }
        return true;
    }
};

class PySampler {
  public:
    PySampler(nb::handle heads, const nb::dict& arrays, std::size_t writers, std::size_t slots,
              const std::vector<std::string>& fields, int n_step, double gamma, float reward_limit,
              const Stacks& stacks, nb::object tree,
              const std::optional<std::string>& level)
        : tree_(tree),
          heads_(memory::structure_memory("a table", heads, memory::Buffer::writable, memory::Table<>::required(writers))),
          table_(heads_.data(), writers, slots),
          rows_(find_rows(arrays, static_cast<std::int64_t>(writers), static_cast<std::int64_t>(slots), fields)),
          sampler_(table_, rows_, Chains(rows_, n_step, gamma, depth(stacks), reward_limit), tree_of(tree),
                   level ? replay::level(level->c_str()) : best_level()) {
        for (const auto& [key, array] : arrays) offer(nb::cast<std::string>(key), fields, stacks);
        const nb::object float32 = views_.at("reward").dtype(), int64 = views_.at("final_count").dtype();
        const std::pair<const char*, Kind> numbers[] = {{"reward", Kind::reward},
                                                        {"discount", Kind::discount},
                                                        {"importance", Kind::importance},
                                                        {"weight", Kind::weight},
                                                        {"index", Kind::index},
                                                        {"stamp", Kind::stamp}};
        for (const auto& [name, kind] : numbers)
            offered_[name] = {kind, nullptr, {}, kind == Kind::index || kind == Kind::stamp ? int64 : float32,
                              kind == Kind::index || kind == Kind::stamp || kind == Kind::importance};
    }

    void sample(std::uint64_t seed, std::uint64_t number, const nb::dict& out, const Before& before, double beta) {
        const Bound& batch = bound(out, 1);
        sampled(before, [&](std::span<const std::uint64_t> below) {
            sampler_.sample({seed, number, 0}, batch.items, batch.m, below, beta);
        });
    }

    void sequences(std::uint64_t seed, std::uint64_t number, const nb::dict& out, const Before& before, double beta) {
        const Bound& batch = bound(out, 2);
        if (batch.length < 2) throw nb::value_error("a sequence has at least one row, and the observation behind it");
        sampled(before, [&](std::span<const std::uint64_t> below) {
            sampler_.sample_sequences({seed, number, 0}, batch.items, batch.once, batch.m, batch.length - 1, below, beta);
        });
    }

    // For PyMinibatches: a checked batch of m rows, and one sample into it without Python.
    Bound batch(const nb::dict& out) { return checked(out, 1); }
    void sample(const SampleKey& key, const Bound& batch, std::span<const std::uint64_t> before, double beta) {
        const std::lock_guard locked(mutex_);
        sampler_.sample(key, batch.items, batch.m, before, beta);
    }
    [[nodiscard]] std::size_t writers() const { return table_.writers(); }

  private:
    static constexpr std::size_t most_bound = 16;

    template <class Sampling>
    void sampled(const Before& before, const Sampling& sampling) {
        if (before && before->size() != table_.writers())
            throw nb::value_error(("before has " + std::to_string(before->size()) + " sequences, the table " +
                                   std::to_string(table_.writers()) + " writers").c_str());
        std::optional<Nothing> nothing;
        {
            const nb::gil_scoped_release released;
            const std::lock_guard locked(mutex_);
            try {
                sampling(before ? std::span<const std::uint64_t>(*before) : std::span<const std::uint64_t>());
            } catch (const Nothing& error) {
                nothing = error;
            }
        }
        if (nothing) raise("ResourceError", nothing->what());
    }

    static int depth(const Stacks& stacks) {
        int deepest = 1;
        for (const auto& [field, frames, zeros] : stacks) deepest = std::max(deepest, frames);
        return deepest - 1;
    }

    [[nodiscard]] const SumTree<>* tree_of(const nb::object& tree) const {
        if (tree.is_none()) return nullptr;
        const SumTree<>& found = nb::cast<const PySumTree&>(tree).tree();
        const std::int64_t leaves = rows_.row(rows_.writers * rows_.slots, 0, 0);
        if (static_cast<std::int64_t>(found.capacity()) < leaves)
            throw nb::value_error(("the tree has " + std::to_string(found.capacity()) + " leaves, the table " +
                                   std::to_string(leaves) + " rows").c_str());
        return &found;
    }

    // The array of the table called `name`, as `Number`s.
    template <class Number>
    const Number* numbers(const char* name) const {
        const auto view = views_.find(name);
        if (view == views_.end()) throw nb::key_error(name);
        if (view->second.item_nbytes() != sizeof(Number))
            throw nb::value_error((std::string(name) + " does not have the dtype of a rollout's").c_str());
        return reinterpret_cast<const Number*>(view->second.data());
    }

    Rows find_rows(const nb::dict& arrays, std::int64_t writers, std::int64_t slots, const std::vector<std::string>& fields) {
        for (const auto& [name, array] : arrays)
            views_.emplace(nb::cast<std::string>(name), View(array, PyBUF_CONTIG_RO));
        Rows rows{};
        rows.valid = numbers<std::uint8_t>("valid");
        rows.terminated = numbers<std::uint8_t>("terminated");
        rows.truncated = numbers<std::uint8_t>("truncated");
        if (views_.contains("first")) rows.first = numbers<std::uint8_t>("first");
        rows.reward = numbers<float>("reward");
        rows.continues = numbers<std::uint8_t>("continues");
        rows.steps_before = numbers<std::int64_t>("steps_before");
        rows.final_count = numbers<std::int64_t>("final_count");
        rows.final_t = numbers<std::int64_t>("final_t");
        rows.final_lane = numbers<std::int64_t>("final_lane");
        const std::vector<std::int64_t> shape = views_.at("valid").shape();
        if (shape.size() != 3 || shape[0] != writers * slots || shape[1] < 2)
            throw nb::value_error("valid must be [writers * slots, T + 1, lanes]");
        rows.writers = writers;
        rows.slots = slots;
        rows.steps = shape[1] - 1;
        rows.lanes = shape[2];
        const auto has_shape = [&](const char* name, std::vector<std::int64_t> wanted) {
            if (views_.at(name).shape() != wanted)
                throw nb::value_error((std::string(name) + " does not have the shape of a rollout's").c_str());
        };
        rows.ends = rows.steps * rows.lanes;
        for (const char* name : {"terminated", "truncated", "reward"}) has_shape(name, shape);
        for (const char* name : {"final_t", "final_lane"}) has_shape(name, {shape[0], rows.ends});
        has_shape("final_count", {shape[0]});
        for (const char* name : {"continues", "steps_before"}) has_shape(name, {shape[0], rows.lanes});
        rows.same_step = views_.contains("final." + fields.at(0));
        return rows;
    }

    // Offers the array as a field of rows, if it is one.
    void offer(const std::string& name, const std::vector<std::string>& fields, const Stacks& stacks) {
        const View& view = views_.at(name);
        std::vector<std::int64_t> shape = view.shape();
        if (name.starts_with("carry.")) return offer_carry(name, view);
        if (shape.size() < 3 || shape[1] != rows_.steps + 1 || shape[2] != rows_.lanes || name.starts_with("final.")) return;
        shape.erase(shape.begin(), shape.begin() + 3);
        std::size_t nbytes = view.item_nbytes();
        for (const std::int64_t extent : shape) nbytes *= static_cast<std::size_t>(extent);
        const bool observed = std::ranges::find(fields, name) != fields.end();
        std::size_t frames = 1;
        bool zeros = false;
        for (const auto& [field, count, pads] : stacks) {
            if (field != name) continue;
            frames = static_cast<std::size_t>(count);
            zeros = pads;
        }
        if (frames > 1) shape.insert(shape.begin(), static_cast<std::int64_t>(frames));
        const std::byte* finals = nullptr;
        if (observed && rows_.same_step) finals = views_.at("final." + name).data();
        const Column& column = columns_.emplace_back(Column{view.data(), finals, nbytes, frames, zeros});
        offered_[name] = {Kind::row, &column, shape, view.dtype()};
        if (observed) offered_["next." + name] = {Kind::next, &column, shape, view.dtype()};
    }

    // Offers what a slot holds once for each lane: [writers * slots, lanes, ...].
    void offer_carry(const std::string& name, const View& view) {
        std::vector<std::int64_t> shape = view.shape();
        if (shape.size() < 2 || shape[1] != rows_.lanes)
            throw nb::value_error((name + " does not have the shape of a rollout's").c_str());
        shape.erase(shape.begin(), shape.begin() + 2);
        std::size_t nbytes = view.item_nbytes();
        for (const std::int64_t extent : shape) nbytes *= static_cast<std::size_t>(extent);
        const Column& column = columns_.emplace_back(Column{view.data(), nullptr, nbytes, 1, false});
        offered_[name] = {Kind::lane, &column, shape, view.dtype(), true};
    }

    // True if a batch may hold this array. Single rows have no carry. Sequences have rows, rewards, and arrays with one
    // element for each sequence.
    [[nodiscard]] static bool holds(const Offered& offered, std::size_t leading) {
        if (leading == 1) return offered.kind != Kind::lane;
        const Kind kind = offered.kind;
        return offered.once || kind == Kind::row || kind == Kind::reward;
    }

    const Bound& bound(const nb::dict& out, std::size_t leading) {
        for (const Bound& known : bound_)
            if (known.is(out, leading)) return known;
        if (bound_.size() == most_bound) bound_.pop_front();
        return bound_.emplace_back(checked(out, leading));
    }

    Bound checked(const nb::dict& out, std::size_t leading) {
        Bound made;
        made.leading = leading;
        for (const auto& [key, array] : out) {
            const auto name = nb::cast<std::string>(key);
            const auto found = offered_.find(name);
            if (found == offered_.end() || !holds(found->second, leading))
                throw nb::key_error(("no " + name + " can be sampled from this table").c_str());
            made.arrays.emplace_back(nb::borrow(key), View(array, PyBUF_CONTIG));
            const View& view = made.arrays.back().second;
            std::vector<std::int64_t> shape = view.shape();
            const Offered& offered = found->second;
            const bool once = leading == 2 && offered.once;
            const std::size_t before = once ? 1 : leading;
            const auto head = static_cast<std::ptrdiff_t>(before);
            const bool fits = shape.size() >= before && view.dtype().equal(offered.dtype) &&
                              std::equal(shape.begin() + head, shape.end(), offered.shape.begin(), offered.shape.end());
            const std::size_t m = fits ? static_cast<std::size_t>(shape[0]) : 0;
            const std::size_t length = fits && before == 2 ? static_cast<std::size_t>(shape[1]) : 1;
            if (!fits || (made.arrays.size() > 1 && m != made.m) || (!once && !made.items.empty() && length != made.length))
                throw nb::value_error((name + " does not have the dtype and shape of a batch's").c_str());
            made.m = m;
            if (!once) made.length = length;
            // The observation of a row in a sequence may lie in the side area.
            const auto next = offered_.find("next." + name);
            const Kind kind = leading == 2 && next != offered_.end() ? next->second.kind : offered.kind;
            (once ? made.once : made.items).push_back({kind, offered.column, view.data()});
        }
        if (made.m == 0) throw nb::value_error("a batch has at least one row");
        return made;
    }

    nb::object tree_;  // kept alive
    memory::Buffer heads_;
    memory::Table<> table_;
    std::map<std::string, View> views_;
    std::deque<Column> columns_;
    std::map<std::string, Offered> offered_;
    Rows rows_;
    std::mutex mutex_;
    Sampler sampler_;
    std::deque<Bound> bound_;
};

}  // namespace penstock::replay
