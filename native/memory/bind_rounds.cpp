// The Python class of rounds: each member brings arrays of float32, and all members get the weighted mean.
#include "binding.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <nanobind/stl/vector.h>

#include "buffer.hpp"
#include "penstock/memory/rounds.hpp"

namespace penstock::memory {
namespace {

std::chrono::nanoseconds nanoseconds(double seconds) {
    return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
}

// One member's end. A payload is its weight, a double, and then its floats.
class PyRounds {
  public:
    PyRounds(nb::handle bytes, std::size_t members, std::size_t floats, std::size_t member)
        : buffer_(structure_memory("rounds", bytes, Buffer::writable, required(members, floats))),
          rounds_(buffer_.data(), members),
          members_(members),
          floats_(floats),
          member_(member) {
        check_index("member", member, members);
    }

    static std::size_t required(std::size_t members, std::size_t floats) {
        check_index("members", members, Standing::most + 1);
        return Rounds<>::required(members, nbytes(floats));
    }

    int join(bool anew) { return static_cast<int>(rounds_.join(member_, anew)); }
    bool asked() const { return rounds_.asking(member_) != 0; }
    void admit() { rounds_.admit(member_); }
    void remove() { rounds_.remove(member_); }
    std::uint64_t members() const { return rounds_.standing().members; }
    bool begun() const { return rounds_.standing().arrived != 0; }
    bool founded() const { return rounds_.standing().begun; }
    std::uint32_t word() const { return rounds_.word(member_); }

    void sleep(std::uint32_t seen, double timeout_s, double spin_s) {
        const nb::gil_scoped_release released;
        rounds_.sleep(member_, seen, nanoseconds(timeout_s), nanoseconds(spin_s));
    }

    void arrive(const std::vector<nb::object>& arrays, double weight) {
        const Standing now = rounds_.standing();
        if ((now.members & ~now.arrived & Standing::bit(member_)) == 0) {
            raise("PenstockError", "member " + std::to_string(member_) + " has no part in this round, or had it");
        }
        std::vector<Buffer> sources;
        sources.reserve(arrays.size());
        std::size_t total = 0;
        for (const nb::object& array : arrays) {
            sources.emplace_back(array, Buffer::readable);
            total += sources.back().size() / sizeof(float);
        }
        check_index("float", total, floats_ + 1);
        const nb::gil_scoped_release released;
        unsigned char* to = payload(member_, now.round);
        std::memcpy(to, &weight, sizeof weight);
        to += sizeof weight;
        for (const Buffer& source : sources) {
            std::memcpy(to, source.data(), source.size());
            to += source.size();
        }
        round_ = rounds_.arrive(member_);
    }

    bool over() const { return rounds_.over(round_); }

    // The weight that each member brought to the last round; -1 for those that had no part in it.
    std::vector<double> weights() const {
        const std::uint64_t last = rounds_.standing().last;
        std::vector<double> found;
        found.reserve(members_);
        for (std::size_t member = 0; member < members_; ++member) {
            found.push_back((last & Standing::bit(member)) != 0 ? load_weight(payload(member, round_)) : -1.0);
        }
        return found;
    }

    // Copies the first bytes that a member brought to the last round.
    void brought(std::size_t member, nb::handle into) const {
        check_index("member", member, members_);
        Buffer target(into, Buffer::writable);
        check_index("byte", target.size(), floats_ * sizeof(float) + 1);
        std::memcpy(target.data(), payload(member, round_) + sizeof(double), target.size());
    }

    // Adds in the order of the members, so that all members get the same bits.
    void mean(const std::vector<nb::object>& arrays) const {
        std::vector<Buffer> targets;
        targets.reserve(arrays.size());
        std::size_t floats = 0;
        for (const nb::object& array : arrays) {
            targets.emplace_back(array, Buffer::writable);
            floats += targets.back().size() / sizeof(float);
        }
        check_index("float", floats, floats_ + 1);
        const nb::gil_scoped_release released;
        std::vector<const unsigned char*> brought;
        std::vector<double> weights;
        double total = 0.0;
        const std::uint64_t last = rounds_.standing().last;
        for (std::size_t member = 0; member < members_; ++member) {
            if ((last & Standing::bit(member)) != 0) {
                const unsigned char* from = payload(member, round_);
                brought.push_back(from + sizeof(double));
                weights.push_back(load_weight(from));
                total += weights.back();
            }
        }
        std::size_t offset = 0;
        for (const Buffer& target : targets) {
            add_up(reinterpret_cast<float*>(target.data()), target.size() / sizeof(float), offset, brought, weights, total);
            offset += target.size();
        }
    }

  private:
    static std::size_t nbytes(std::size_t floats) { return sizeof(double) + floats * sizeof(float); }

    static double load_weight(const unsigned char* from) {
        double weight;
        std::memcpy(&weight, from, sizeof weight);
        return weight;
    }

    static void add_up(float* to, std::size_t count, std::size_t offset, const std::vector<const unsigned char*>& brought,
                       const std::vector<double>& weights, double total) {
        for (std::size_t i = 0; i < brought.size(); ++i) {
            const auto* from = reinterpret_cast<const float*>(brought[i] + offset);
            // A member that is alone gets exactly the arrays that it brought.
            const float share = total == 0.0 ? 0.0F : static_cast<float>(weights[i] / total);
            if (i == 0) {
                for (std::size_t k = 0; k < count; ++k) {
                    to[k] = share * from[k];
                }
            } else {
                for (std::size_t k = 0; k < count; ++k) {
                    to[k] += share * from[k];
                }
            }
        }
    }

    unsigned char* payload(std::size_t member, std::uint64_t round) const {
        return buffer_.data() + Rounds<>::offset(members_, nbytes(floats_), member, round);
    }

    Buffer buffer_;
    Rounds<> rounds_;
    std::size_t members_;
    std::size_t floats_;
    std::size_t member_;
    std::uint64_t round_ = 0;
};

}  // namespace

void bind_rounds(nb::module_& module) {
    nb::class_<PyRounds>(module, "Rounds")
        .def(nb::init<nb::handle, std::size_t, std::size_t, std::size_t>())
        .def_static("required", &PyRounds::required)
        .def("join", &PyRounds::join)
        .def("asked", &PyRounds::asked)
        .def("admit", &PyRounds::admit)
        .def("remove", &PyRounds::remove)
        .def("members", &PyRounds::members)
        .def("begun", &PyRounds::begun)
        .def("founded", &PyRounds::founded)
        .def("word", &PyRounds::word)
        .def("sleep", &PyRounds::sleep)
        .def("arrive", &PyRounds::arrive)
        .def("over", &PyRounds::over)
        .def("weights", &PyRounds::weights)
        .def("brought", &PyRounds::brought)
        .def("mean", &PyRounds::mean);
}

}  // namespace penstock::memory
