// Python's view of the structures: each class holds the buffer that its structure lies in, checks what it is given, and
// turns refusals into penstock's exceptions. No protocol lives here.
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <unistd.h>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "buffer.hpp"
#include "penstock/memory/action_log.hpp"
#include "penstock/memory/board.hpp"
#include "penstock/memory/counters.hpp"
#include "penstock/memory/doorbell.hpp"
#include "penstock/memory/lifeline.hpp"
#include "penstock/memory/record.hpp"
#include "penstock/memory/slots.hpp"

namespace penstock::memory {
namespace {

using Order = std::memory_order;

class PySlots {
  public:
    PySlots(nb::handle bytes, std::size_t slots)
        : buffer_(structure_memory("a stream", bytes, Buffer::writable, Slots<>::required(slots))),
          slots_(buffer_.data(), slots) {}

    std::optional<std::size_t> claim(std::uint64_t owner, std::uint64_t sequence) {
        check_owner(owner);
        if (sequence >= SlotWord::sequences) {
            raise("ResourceError", "sequence " + std::to_string(sequence) +
                                       " is beyond 2^40 - 1, the last one of a stream: stop the run and resume it");
        }
        return slots_.claim(owner, sequence);
    }
    std::optional<std::size_t> take(std::uint64_t owner) {
        check_owner(owner);
        return slots_.take(owner);
    }
    void push(std::size_t index, std::uint64_t owner) {
        check_index("slot", index, slots_.slots());
        if (!slots_.push(index, owner)) {
            refuse("push", index, owner, "writing");
        }
    }
    void release(std::size_t index, std::uint64_t owner) {
        check_index("slot", index, slots_.slots());
        if (!slots_.release(index, owner)) {
            refuse("release", index, owner, "reading");
        }
    }
    std::tuple<std::size_t, std::size_t> recover(std::uint64_t owner) {
        const Recovered recovered = slots_.recover(owner);
        return {recovered.freed, recovered.returned};
    }
    std::size_t release_consumed(std::uint64_t owner, const std::vector<std::uint64_t>& sequences) {
        return slots_.release_consumed(owner, sequences);
    }
    std::tuple<std::uint64_t, std::uint64_t, std::uint64_t> word(std::size_t index) const {
        check_index("slot", index, slots_.slots());
        const SlotWord word = slots_.word(index);
        return {static_cast<std::uint64_t>(word.state), word.owner, word.sequence};
    }
    std::size_t ready() const { return slots_.count(SlotState::ready); }
    std::size_t free() const { return slots_.count(SlotState::free); }

  private:
    static void check_owner(std::uint64_t owner) {
        if (owner >= SlotWord::owners) {
            raise("ResourceError", "owner " + std::to_string(owner) +
                                       " is beyond 2^20 - 1, the last incarnation of a run: stop the run and resume it");
        }
    }
    [[noreturn]] void refuse(const char* verb, std::size_t index, std::uint64_t owner, const char* state) const {
        static constexpr const char* names[] = {"free", "writing", "ready", "reading"};
        const SlotWord word = slots_.word(index);
        raise("FencedError", std::string("owner ") + std::to_string(owner) + " cannot " + verb + " slot " +
                                 std::to_string(index) + ": it is not " + state + " under that owner, but " +
                                 names[static_cast<std::size_t>(word.state) % 4] + " under owner " +
                                 std::to_string(word.owner));
    }

    Buffer buffer_;
    Slots<> slots_;
};

class PyBoard {
  public:
    PyBoard(nb::handle bytes, std::size_t words, std::size_t buffers, bool writable)
        : buffer_(structure_memory("a board", bytes, writable ? Buffer::writable : Buffer::readable,
                                   Board<>::required(words, buffers))),
          board_(buffer_.data(), words, buffers),
          words_(words) {}

    // offsets: where each array starts, in bytes, a multiple of 8.
    void publish(const std::vector<nb::object>& arrays, const std::vector<std::size_t>& offsets, std::int64_t version) {
        std::vector<Buffer> sources;
        sources.reserve(arrays.size());
        for (std::size_t i = 0; i < arrays.size(); ++i) {
            sources.emplace_back(arrays[i], Buffer::readable);
            check_place(sources[i], offsets.at(i));
        }
        board_.begin();
        for (std::size_t i = 0; i < sources.size(); ++i) {
            board_.store(offsets[i] / word_bytes, sources[i].data(), sources[i].size());
        }
        board_.finish(version);
    }

    std::int64_t read(const std::vector<nb::object>& arrays, const std::vector<std::size_t>& offsets) const {
        std::vector<Buffer> targets;
        targets.reserve(arrays.size());
        for (std::size_t i = 0; i < arrays.size(); ++i) {
            targets.emplace_back(arrays[i], Buffer::writable);
            check_place(targets[i], offsets.at(i));
        }
        return board_.read([&](const Board<>::Word* words) {
            for (std::size_t i = 0; i < targets.size(); ++i) {
                load_words<std::atomic>(targets[i].data(), words + offsets[i] / word_bytes, targets[i].size(),
                                        Order::acquire);
            }
        });
    }

    std::int64_t version() const { return board_.version(); }
    bool recover() { return board_.recover(); }

  private:
    void check_place(const Buffer& buffer, std::size_t offset) const {
        check_index("word", offset / word_bytes + words_for(buffer.size()), words_ + 1);
    }

    Buffer buffer_;
    Board<> board_;
    std::size_t words_;
};

class PyDoorbells {
  public:
    PyDoorbells(nb::handle bytes, std::size_t count)
        : buffer_(structure_memory("the doorbells", bytes, Buffer::writable, Doorbells<>::required(count))),
          bells_(buffer_.data()),
          descriptors_(count, -1) {}

    void ring(std::size_t index) {
        check(index);
        if (bells_.ring(index) && descriptors_[index] >= 0) {
            const std::uint64_t one = 1;
            // A full pipe (EAGAIN) is readable already, and so is what its reader waits for.
            [[maybe_unused]] const ssize_t written = write(descriptors_[index], &one, sizeof one);
        }
    }
    void ring_all() {
        for (std::size_t index = 0; index < descriptors_.size(); ++index) {
            ring(index);
        }
    }
    std::uint32_t word(std::size_t index) const {
        check(index);
        return bells_.word(index);
    }
    bool wait(std::size_t index, std::uint32_t seen, double timeout_s, double spin_s) {
        check(index);
        const nb::gil_scoped_release released;
        return bells_.wait(index, seen, duration(timeout_s), duration(spin_s));
    }
    void attach(std::size_t index, int descriptor) {
        check(index);
        descriptors_[index] = descriptor;
    }
    bool arm(std::size_t index, std::uint32_t seen) {
        check(index);
        return bells_.arm(index, seen);
    }
    void disarm(std::size_t index) {
        check(index);
        bells_.disarm(index);
    }
    void recover(std::size_t index) {
        check(index);
        bells_.recover(index);
    }

  private:
    void check(std::size_t index) const { check_index("bell", index, descriptors_.size()); }

    // Anything from the ceiling on means the ceiling, infinity included; not a number means no time at all.
    static std::chrono::nanoseconds duration(double seconds) {
        const double longest = std::chrono::duration<double>(Doorbells<>::ceiling).count();
        if (!(seconds > 0.0)) {
            return std::chrono::nanoseconds(0);
        }
        return std::chrono::nanoseconds(static_cast<std::int64_t>(std::fmin(seconds, longest) * 1e9));
    }

    Buffer buffer_;
    Doorbells<> bells_;
    std::vector<int> descriptors_;  // of this process
};

class PyRecord {
  public:
    PyRecord(nb::handle bytes, std::size_t nbytes)
        : buffer_(structure_memory("a commit record", bytes, Buffer::writable, Record<>::required(nbytes))),
          record_(buffer_.data(), nbytes),
          nbytes_(nbytes) {}

    std::size_t begin() { return record_.begin(); }
    bool commit(std::int64_t number) { return record_.commit(number); }
    std::optional<std::tuple<std::size_t, std::int64_t>> current() const {
        const auto current = record_.current();
        return current ? std::optional(std::tuple(current->index, current->number)) : std::nullopt;
    }
    // Copies the whole record into `into`; its number, or None if there is none or it was overwritten meanwhile.
    std::optional<std::int64_t> copy(nb::handle into) {
        const Buffer target(into, Buffer::writable);
        check_size("the copy", target.size(), nbytes_);
        const nb::gil_scoped_release released;  // a state may be hundreds of megabytes
        return record_.copy([&](std::size_t, const Record<>::Word* words) {
            load_words<std::atomic>(target.data(), words, nbytes_, Order::relaxed);
        });
    }
    bool recover() const { return record_.recover(); }

  private:
    Buffer buffer_;
    Record<> record_;
    std::size_t nbytes_;
};

class PyCounters {
  public:
    PyCounters(nb::handle bytes, std::size_t rows, std::size_t names, bool writable)
        : buffer_(structure_memory("the counters", bytes, writable ? Buffer::writable : Buffer::readable,
                                   Counters<>::required(rows, names))),
          counters_(buffer_.data(), names),
          rows_(rows),
          names_(names) {}

    void add(std::size_t row, std::size_t name, std::int64_t amount) {
        check(row, name);
        counters_.add(row, name, amount);
    }
    void set(std::size_t row, std::size_t name, std::int64_t value) {
        check(row, name);
        counters_.set(row, name, value);
    }
    std::int64_t get(std::size_t row, std::size_t name) const {
        check(row, name);
        return counters_.get(row, name);
    }

  private:
    void check(std::size_t row, std::size_t name) const {
        check_index("row", row, rows_);
        check_index("counter", name, names_);
    }

    Buffer buffer_;
    Counters<> counters_;
    std::size_t rows_;
    std::size_t names_;
};

using PyPosition = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>;

class PyActionLog {
  public:
    PyActionLog(nb::handle bytes, std::size_t lanes, std::size_t action_bytes, std::size_t capacity)
        : buffer_(structure_memory("an action log", bytes, Buffer::writable,
                                   ActionLog<>::required(lanes, action_bytes, capacity))),
          log_(buffer_.data(), action_bytes, capacity),
          lanes_(lanes) {}

    void append(nb::handle actions, nb::tuple observations) {
        const Buffer source(actions, Buffer::readable);
        check_size("action", source.size(), lanes_ * log_.action_bytes());
        for (std::size_t lane = 0; lane < lanes_; ++lane) {
            log_.append(lane, source.data() + lane * log_.action_bytes());
        }
        for (const nb::handle field : observations) {
            const Buffer observation = field_of_all_lanes(field);
            const std::size_t nbytes = observation.size() / lanes_;
            for (std::size_t lane = 0; lane < lanes_; ++lane) {
                log_.observe(lane, observation.data() + lane * nbytes, nbytes);
            }
        }
    }

    void append_lane(std::size_t lane, nb::handle action, nb::tuple observations) {
        check_index("lane", lane, lanes_);
        const Buffer source(action, Buffer::readable);
        check_size("action", source.size(), log_.action_bytes());
        log_.append(lane, source.data());
        observe(lane, observations);
    }

    void begin_episode(std::size_t lane, std::int64_t episode, nb::tuple observations) {
        check_index("lane", lane, lanes_);
        log_.begin_episode(lane, episode);
        observe(lane, observations);
    }

    PyPosition position(std::size_t lane) const {
        check_index("lane", lane, lanes_);
        const Position at = log_.position(lane);
        return {at.episode, at.first_step, at.steps, at.hash};
    }

    void rewind(std::size_t lane, const PyPosition& position) {
        check_index("lane", lane, lanes_);
        log_.rewind(lane, unpack(position));
    }

    bool content(std::size_t lane, const PyPosition& position, nb::handle into) const {
        check_index("lane", lane, lanes_);
        const Buffer target(into, Buffer::writable);
        const Position at = unpack(position);
        if (at.first_step < 0 || at.steps < 0) {
            throw nb::value_error("a position counts from 0");
        }
        check_size("content", target.size(), static_cast<std::size_t>(at.steps) * log_.action_bytes());
        return log_.content(lane, at, target.data());
    }

  private:
    static Position unpack(const PyPosition& at) {
        return {std::get<0>(at), std::get<1>(at), std::get<2>(at), std::get<3>(at)};
    }

    void observe(std::size_t lane, nb::tuple observations) {
        for (const nb::handle field : observations) {
            const Buffer observation = field_of_all_lanes(field);
            const std::size_t nbytes = observation.size() / lanes_;
            log_.observe(lane, observation.data() + lane * nbytes, nbytes);
        }
    }

    Buffer field_of_all_lanes(nb::handle field) const {
        Buffer observation(field, Buffer::readable);
        check_size("an observation field", observation.size(), observation.size() / lanes_ * lanes_);
        return observation;
    }

    Buffer buffer_;
    ActionLog<> log_;
    std::size_t lanes_;
};

void bind_structures(nb::module_& module) {
    nb::class_<PySlots>(module, "Slots")
        .def(nb::init<nb::handle, std::size_t>())
        .def_static("required", &Slots<>::required)
        .def("claim", &PySlots::claim)
        .def("push", &PySlots::push)
        .def("take", &PySlots::take)
        .def("release", &PySlots::release)
        .def("recover", &PySlots::recover)
        .def("release_consumed", &PySlots::release_consumed)
        .def("word", &PySlots::word)
        .def("ready", &PySlots::ready)
        .def("free", &PySlots::free);
    nb::class_<PyBoard>(module, "Board")
        .def(nb::init<nb::handle, std::size_t, std::size_t, bool>())
        .def_static("required", &Board<>::required)
        .def("publish", &PyBoard::publish)
        .def("read", &PyBoard::read)
        .def("version", &PyBoard::version)
        .def("recover", &PyBoard::recover);
    nb::class_<PyDoorbells>(module, "Doorbells")
        .def(nb::init<nb::handle, std::size_t>())
        .def_static("required", &Doorbells<>::required)
        .def("ring", &PyDoorbells::ring)
        .def("ring_all", &PyDoorbells::ring_all)
        .def("word", &PyDoorbells::word)
        .def("wait", &PyDoorbells::wait)
        .def("attach", &PyDoorbells::attach)
        .def("arm", &PyDoorbells::arm)
        .def("disarm", &PyDoorbells::disarm)
        .def("recover", &PyDoorbells::recover);
    nb::class_<PyRecord>(module, "Record")
        .def(nb::init<nb::handle, std::size_t>())
        .def_static("required", &Record<>::required)
        .def_static("offset", &Record<>::offset)
        .def("begin", &PyRecord::begin)
        .def("commit", &PyRecord::commit)
        .def("current", &PyRecord::current)
        .def("copy", &PyRecord::copy)
        .def("recover", &PyRecord::recover);
    nb::class_<PyCounters>(module, "Counters")
        .def(nb::init<nb::handle, std::size_t, std::size_t, bool>())
        .def_static("required", &Counters<>::required)
        .def("add", &PyCounters::add)
        .def("set", &PyCounters::set)
        .def("get", &PyCounters::get);
    nb::class_<PyActionLog>(module, "ActionLog")
        .def(nb::init<nb::handle, std::size_t, std::size_t, std::size_t>())
        .def_static("required", &ActionLog<>::required)
        .def("append", &PyActionLog::append)
        .def("append_lane", &PyActionLog::append_lane)
        .def("begin_episode", &PyActionLog::begin_episode)
        .def("position", &PyActionLog::position)
        .def("rewind", &PyActionLog::rewind)
        .def("content", &PyActionLog::content);
}

void watch(int fd, int code) {
    try {
        watch_lifeline(fd, code);
    } catch (const std::system_error& error) {
        raise("ResourceError", "cannot watch descriptor " + std::to_string(fd) + ": " + error.code().message());
    }
}

}  // namespace
}  // namespace penstock::memory

NB_MODULE(_native, module) {
    module.doc() = "Lock-free structures in shared memory.";
    penstock::memory::bind_structures(module);
    module.def("watch_lifeline", &penstock::memory::watch);
}
