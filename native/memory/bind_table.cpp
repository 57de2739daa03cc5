// The Python class of tables.
#include "binding.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "buffer.hpp"
#include "penstock/memory/checksum.hpp"
#include "penstock/memory/table.hpp"

namespace penstock::memory {
namespace {

class PyTable {
  public:
    PyTable(nb::handle bytes, std::size_t writers, std::size_t slots)
        : buffer_(structure_memory("a table", bytes, Buffer::writable, Table<>::required(writers))),
          table_(buffer_.data(), writers, slots) {}

    std::size_t claim(std::size_t writer, std::uint64_t sequence) {
        check(writer);
        if (!table_.claim(writer, sequence)) {
            throw nb::value_error(("writer " + std::to_string(writer) + " cannot claim sequence " +
                                   std::to_string(sequence) + ": its next one is " +
                                   std::to_string(table_.written(writer))).c_str());
        }
        return place(writer, sequence);
    }
    void push(std::size_t writer, std::uint64_t sequence) {
        check(writer);
        if (!table_.push(writer, sequence)) {
            raise("FencedError", "writer " + std::to_string(writer) + " cannot push sequence " +
                                     std::to_string(sequence) + ": it has written " +
                                     std::to_string(table_.written(writer)) + " slots and claimed " +
                                     std::to_string(table_.claimed(writer)));
        }
    }
    void begin(std::size_t writer, std::uint64_t sequence, std::uint64_t first) {
        check(writer);
        table_.begin(writer, sequence, first);
    }
    std::uint64_t first(std::size_t writer) const {
        check(writer);
        return table_.first(writer);
    }
    std::uint64_t oldest(std::size_t writer) {
        check(writer);
        return table_.oldest(writer);
    }
    std::uint64_t written(std::size_t writer) const {
        check(writer);
        return table_.written(writer);
    }
    std::uint64_t claimed(std::size_t writer) const {
        check(writer);
        return table_.claimed(writer);
    }
    std::size_t index(std::size_t writer, std::uint64_t sequence) const {
        check(writer);
        return place(writer, sequence);
    }

  private:
    void check(std::size_t writer) const { check_index("writer", writer, table_.writers()); }

    [[nodiscard]] std::size_t place(std::size_t writer, std::uint64_t sequence) const {
        return writer * table_.slots() + static_cast<std::size_t>(sequence % table_.slots());
    }

    Buffer buffer_;
    Table<> table_;
};

std::uint64_t checksum(nb::sequence parts, std::uint64_t number, std::uint64_t other) {
    std::vector<Buffer> buffers;
    for (const nb::handle part : parts) {
        buffers.emplace_back(part, Buffer::readable);
    }
    const nb::gil_scoped_release released;
    Checksum found;
    std::size_t word = 0;
    for (const Buffer& buffer : buffers) {
        sum_words(buffer.data(), buffer.size(), found, word);
        word += words_for(buffer.size());
    }
    return found.value(number, other);
}

}  // namespace

void bind_table(nb::module_& module) {
    nb::class_<PyTable>(module, "Table")
        .def(nb::init<nb::handle, std::size_t, std::size_t>())
        .def_static("required", &Table<>::required)
        .def("claim", &PyTable::claim)
        .def("push", &PyTable::push)
        .def("begin", &PyTable::begin)
        .def("first", &PyTable::first)
        .def("oldest", &PyTable::oldest)
        .def("written", &PyTable::written)
        .def("claimed", &PyTable::claimed)
        .def("index", &PyTable::index);
    module.def("checksum", &checksum);
}

}  // namespace penstock::memory
