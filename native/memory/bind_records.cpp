// The Python classes of boards, commit records and action logs.
#include "binding.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "buffer.hpp"
#include "penstock/memory/action_log.hpp"
#include "penstock/memory/board.hpp"
#include "penstock/memory/record.hpp"

namespace penstock::memory {
namespace {

class PyBoard {
  public:
    // name: the name of the board in error texts.
    PyBoard(nb::handle bytes, std::size_t words, std::size_t buffers, bool writable, std::string name)
        : buffer_(structure_memory("a board", bytes, writable ? Buffer::writable : Buffer::readable,
                                   Board<>::required(words, buffers))),
          board_(buffer_.data(), words, buffers),
          words_(words),
          name_(std::move(name)) {}

    // offsets: where each array starts, in bytes, a multiple of 8. No two arrays overlap.
    void publish(const std::vector<nb::object>& arrays, const std::vector<std::size_t>& offsets, std::int64_t version) {
        const std::vector<Buffer> sources = buffers(arrays, offsets, Buffer::readable);
        board_.begin();
        for (std::size_t i = 0; i < sources.size(); ++i) {
            board_.store(offsets[i] / word_bytes, sources[i].data(), sources[i].size());
        }
        board_.finish(version);
    }

    std::int64_t read(const std::vector<nb::object>& arrays, const std::vector<std::size_t>& offsets) const {
        const std::vector<Buffer> targets = buffers(arrays, offsets, Buffer::writable);
        std::vector<std::size_t> ascending(targets.size());
        std::iota(ascending.begin(), ascending.end(), std::size_t{0});
        std::sort(ascending.begin(), ascending.end(), [&](std::size_t a, std::size_t b) { return offsets[a] < offsets[b]; });
        return checked(board_.read([&](Board<>::Source& from) {
            for (const std::size_t i : ascending) {
                from.load(offsets[i] / word_bytes, targets[i].data(), targets[i].size());
            }
        }));
    }

    std::int64_t version() const { return checked(board_.version()); }
    std::uint64_t publication() const { return board_.publication(); }
    bool recover() { return board_.recover(); }

  private:
    std::vector<Buffer> buffers(const std::vector<nb::object>& arrays, const std::vector<std::size_t>& offsets,
                                int access) const {
        std::vector<Buffer> all;
        all.reserve(arrays.size());
        for (std::size_t i = 0; i < arrays.size(); ++i) {
            all.emplace_back(arrays[i], access);
            check_index("word", offsets.at(i) / word_bytes + words_for(all[i].size()), words_ + 1);
        }
        return all;
    }

    std::int64_t checked(const Board<>::Reading& reading) const {
        if (!reading.whole) {
            raise("DamagedError", name_ + ", version " + std::to_string(reading.version) +
                                      ": it does not hold what was published, so something else wrote into its shared memory");
        }
        return reading.version;
    }

    Buffer buffer_;
    Board<> board_;
    std::size_t words_;
    std::string name_;
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
    // Copies spans of the record, each its first byte and its bytes, one behind the other into `into`. Returns the record's
    // number. Returns None if there is no record, or if the record was overwritten meanwhile.
    std::optional<std::int64_t> copy(nb::handle into, const std::vector<std::pair<std::size_t, std::size_t>>& spans) {
        const Buffer target(into, Buffer::writable);
        std::size_t total = 0;
        for (const auto& [start, size] : spans) {
            constexpr std::size_t word = sizeof(Record<>::Word);
            if (start % word != 0 || size % word != 0 || start > nbytes_ || size > nbytes_ - start) {
                raise("PenstockError", "a record of " + std::to_string(nbytes_) + " bytes has no " + std::to_string(size) +
                                           " bytes at " + std::to_string(start));
            }
            total += size;
        }
        check_size("the copy", target.size(), total);
        const nb::gil_scoped_release released;  // a state may be hundreds of megabytes
        return record_.copy([&](std::size_t, const Record<>::Word* words) {
            unsigned char* at = target.data();
            for (const auto& [start, size] : spans) {
                load_words<std::atomic>(at, words + start / sizeof(Record<>::Word), size, std::memory_order_relaxed);
                at += size;
            }
        });
    }
    bool recover() const { return record_.recover(); }

  private:
    Buffer buffer_;
    Record<> record_;
    std::size_t nbytes_;
};


using PyPosition = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>;


class PyActionLog {
  public:
    PyActionLog(nb::handle bytes, std::size_t lanes, std::size_t action_bytes, std::size_t capacity)
        : buffer_(structure_memory("an action log", bytes, Buffer::writable,
                                   ActionLog<>::required(lanes, action_bytes, capacity))),
          log_(buffer_.data(), action_bytes, capacity),
          lanes_(lanes) {}

    ActionLog<>& log() { return log_; }
    std::size_t lanes() const { return lanes_; }

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


// An action log and a rollout's arrays, [T + 1, lanes, ...] each. They are checked once, so that each vector step needs
// only one cheap call.
class PyRolloutLog {
  public:
    PyRolloutLog(PyActionLog& log, nb::handle actions, nb::tuple observations, std::size_t rows)
        : log_(log), actions_(actions, Buffer::writable), rows_(rows) {
        check_index("row", 0, rows);
        const std::size_t cells = rows * log.lanes();
        check_size("action", actions_.size(), cells * log.log().action_bytes());
        for (const nb::handle observation : observations) {
            Buffer buffer(observation, Buffer::writable);
            check_size("an observation field", buffer.size(), buffer.size() / cells * cells);
            fields_.push_back({buffer.data(), buffer.size() / cells});
            owners_.push_back(std::move(buffer));
        }
    }

    // Appends the actions of row t and the observations of row t + 1.
    void append(std::size_t t) {
        check_index("row", t + 1, rows_);
        const std::size_t lanes = log_.lanes(), nbytes = log_.log().action_bytes();
        for (std::size_t lane = 0; lane < lanes; ++lane) {
            log_.log().append(lane, actions_.data() + (t * lanes + lane) * nbytes);
            observe(lane, t + 1);
        }
    }

    // The lane's observation of row t is the first of an episode.
    void begin_episode(std::size_t lane, std::int64_t episode, std::size_t t) {
        check_index("lane", lane, log_.lanes());
        check_index("row", t, rows_);
        log_.log().begin_episode(lane, episode);
        observe(lane, t);
    }

  private:
    struct Field {
        const unsigned char* data;
        std::size_t nbytes;  // of one lane's row
    };

    void observe(std::size_t lane, std::size_t t) {
        for (const Field& field : fields_) {
            log_.log().observe(lane, field.data + (t * log_.lanes() + lane) * field.nbytes, field.nbytes);
        }
    }

    PyActionLog& log_;
    Buffer actions_;
    std::size_t rows_;
    std::vector<Field> fields_;
    std::vector<Buffer> owners_;
};

}  // namespace

void bind_records(nb::module_& module) {
    nb::class_<PyBoard>(module, "Board")
        .def(nb::init<nb::handle, std::size_t, std::size_t, bool, std::string>())
        .def_static("required", &Board<>::required)
        .def("publish", &PyBoard::publish)
        .def("read", &PyBoard::read)
        .def("version", &PyBoard::version)
        .def("publication", &PyBoard::publication)
        .def("recover", &PyBoard::recover);
    nb::class_<PyRecord>(module, "Record")
        .def(nb::init<nb::handle, std::size_t>())
        .def_static("required", &Record<>::required)
        .def_static("offset", &Record<>::offset)
        .def("begin", &PyRecord::begin)
        .def("commit", &PyRecord::commit)
        .def("current", &PyRecord::current)
        .def("copy", &PyRecord::copy)
        .def("recover", &PyRecord::recover);
    nb::class_<PyActionLog>(module, "ActionLog")
        .def(nb::init<nb::handle, std::size_t, std::size_t, std::size_t>())
        .def_static("required", &ActionLog<>::required)
        .def("append_lane", &PyActionLog::append_lane)
        .def("begin_episode", &PyActionLog::begin_episode)
        .def("position", &PyActionLog::position)
        .def("rewind", &PyActionLog::rewind)
        .def("content", &PyActionLog::content);
    nb::class_<PyRolloutLog>(module, "RolloutLog")
        .def(nb::init<PyActionLog&, nb::handle, nb::tuple, std::size_t>(), nb::keep_alive<1, 2>())
        .def("append", &PyRolloutLog::append)
        .def("begin_episode", &PyRolloutLog::begin_episode);
}

}  // namespace penstock::memory
