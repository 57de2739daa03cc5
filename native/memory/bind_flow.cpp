// The Python classes of slots, doorbells and counters.
#include "binding.hpp"

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <unistd.h>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "buffer.hpp"
#include "penstock/memory/counters.hpp"
#include "penstock/memory/doorbell.hpp"
#include "penstock/memory/slots.hpp"

namespace penstock::memory {
namespace {

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
                                       " is beyond 2^20 - 1, the last life in a run: stop the run and resume it");
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
            // A write to a full pipe fails with EAGAIN. That is no loss: the pipe is readable already, so its reader wakes.
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

    // Values above the ceiling, infinity included, mean the ceiling. NaN means 0.
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

}  // namespace

void bind_flow(nb::module_& module) {
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
    nb::class_<PyCounters>(module, "Counters")
        .def(nb::init<nb::handle, std::size_t, std::size_t, bool>())
        .def_static("required", &Counters<>::required)
        .def("add", &PyCounters::add)
        .def("set", &PyCounters::set)
        .def("get", &PyCounters::get);
}

}  // namespace penstock::memory
