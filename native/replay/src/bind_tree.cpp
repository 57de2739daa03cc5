#include "bind_tree.hpp"

#include <algorithm>
#include <numeric>

#include "penstock/replay/below.hpp"

namespace penstock::replay {

void PySumTree::to_fixed(std::span<const double> priorities) {
    fixed_.resize(priorities.size());
    touched_.resize(std::max(touched_.size(), fixed_.size()));
    std::uint64_t largest = 0;
    for (std::size_t i = 0; i < fixed_.size(); ++i) {
        const double priority = priorities[i];
        if (!(priority >= 0.0) || std::isinf(priority))
            throw nb::value_error(("priority " + std::to_string(priority) + " is not a number from 0 on").c_str());
        const double most = static_cast<double>(SumTree<>::priorities - 1);
        // A priority above 0 stays above 0, so that its row can be sampled.
        const double fixed = priority > 0.0 ? std::clamp(std::nearbyint(priority * units), 1.0, most) : 0.0;
        fixed_[i] = static_cast<std::uint64_t>(fixed);
        largest = std::max(largest, fixed_[i]);
    }
    tree_.raise(largest);
}

void PySumTree::check_rows(std::size_t first, std::size_t count) const {
    if (first > tree_.capacity() || count > tree_.capacity() - first)
        throw nb::index_error(("row " + std::to_string(first + count - 1) + " of " + std::to_string(tree_.capacity())).c_str());
}

void PySumTree::set(std::size_t first, std::uint64_t stamp, const Vector<const double>& priorities) {
    check_rows(first, priorities.shape(0));
    to_fixed({priorities.data(), priorities.shape(0)});
    const nb::gil_scoped_release released;
    tree_.set(first, stamp, fixed_, touched_);
}

std::size_t PySumTree::update(const Vector<const std::int64_t>& rows, const Vector<const std::int64_t>& stamps,
                              const Vector<const double>& priorities) {
    const std::size_t count = rows.shape(0);
    if (stamps.shape(0) != count || priorities.shape(0) != count)
        throw nb::value_error("rows, stamps and priorities must be as many");
    for (std::size_t i = 0; i < count; ++i)
        if (rows.data()[i] < 0 || static_cast<std::size_t>(rows.data()[i]) >= tree_.capacity())
            throw nb::index_error(("row " + std::to_string(rows.data()[i]) + " of " + std::to_string(tree_.capacity())).c_str());
    to_fixed({priorities.data(), priorities.shape(0)});
    const nb::gil_scoped_release released;
    return tree_.update({rows.data(), count}, {stamps.data(), count}, fixed_, touched_);
}

// Samples stratified, as penstock.replay.sampler does at a first attempt. A row that could not be found is -1.
void PySumTree::sample(std::uint64_t seed, std::uint64_t number, const Vector<std::int64_t>& rows,
                       const Vector<std::int64_t>& stamps, const Vector<double>& probabilities) {
    const std::size_t count = rows.shape(0);
    if (stamps.shape(0) != count || probabilities.shape(0) != count)
        throw nb::value_error("rows, stamps and probabilities must be as many");
    const std::uint64_t total = tree_.total();
    if (total == 0) memory::raise("ResourceError", "nothing can be sampled: every priority is 0");
    std::vector<std::uint32_t> positions(count), words(4 * count);
    std::iota(positions.begin(), positions.end(), 0U);
    best_level().random_words({seed, number, 0}, positions.data(), count, words.data());
    std::vector<std::uint64_t> points(count);
    std::vector<std::size_t> found(count);
    for (std::size_t i = 0; i < count; ++i)
        points[i] = stratum_point(i, count, total, words[i] | std::uint64_t{words[count + i]} << 32);
    tree_.find(points, found);
    for (std::size_t i = 0; i < count; ++i) {
        const bool lost = found[i] == SumTree<>::nowhere;
        const SumTree<>::Leaf leaf = tree_.leaf(lost ? 0 : found[i]);
        rows.data()[i] = lost ? -1 : static_cast<std::int64_t>(found[i]);
        stamps.data()[i] = static_cast<std::int64_t>(leaf.tag);
        probabilities.data()[i] = static_cast<double>(leaf.priority) / static_cast<double>(total);
    }
}

void bind_tree(nb::module_& module) {
    nb::class_<PySumTree>(module, "SumTree")
        .def(nb::init<nb::handle, std::size_t>())
        .def_static("required", &SumTree<>::required)
        .def("set", &PySumTree::set)
        .def("update", &PySumTree::update)
        .def("sample", &PySumTree::sample)
        .def("recover", &PySumTree::recover)
        .def("total", &PySumTree::total)
        .def("max_priority", &PySumTree::max_priority);
}

}  // namespace penstock::replay
