#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bind_sampler.hpp"
#include "penstock/kernels/minibatches.hpp"
#include "py_sampler.hpp"

namespace penstock::replay {
namespace {

// Samples into one batch, and ranks its rows, for native code of another module. See penstock/kernels/minibatches.hpp.
class PyMinibatches {
  public:
    PyMinibatches(nb::object sampler, const nb::dict& out, nb::object tree, double alpha)
        : sampler_object_(sampler), tree_object_(tree), sampler_(nb::cast<PySampler&>(sampler)), batch_(sampler_.batch(out)),
          tree_(tree.is_none() ? nullptr : &nb::cast<PySumTree&>(tree)), alpha_(alpha), minibatches_{this, &sample, &rank} {
        for (const Item& item : batch_.items) {
            if (item.kind == Kind::index) rows_ = reinterpret_cast<const std::int64_t*>(item.to);
            if (item.kind == Kind::stamp) stamps_ = reinterpret_cast<const std::int64_t*>(item.to);
        }
        if (tree_ != nullptr && (rows_ == nullptr || stamps_ == nullptr))
            throw nb::value_error("a batch that is ranked has index and stamp");
    }
    PyMinibatches(const PyMinibatches&) = delete;
    PyMinibatches& operator=(const PyMinibatches&) = delete;

    // Only slots below these sequences are sampled, one for each writer.
    void before(std::vector<std::uint64_t> sequences) {
        if (sequences.size() != sampler_.writers()) throw nb::value_error("there is one sequence for each writer");
        before_ = std::move(sequences);
    }
    [[nodiscard]] nb::capsule capsule() { return nb::capsule(&minibatches_, kernels::kMinibatchesName); }
    // Forgets the earlier priorities, or gives all rows back their earlier priorities, the last change first.
    void forget() { former_.clear(); }
    void take_back() {
        for (auto change = former_.rbegin(); change != former_.rend(); ++change)
            tree_->change(change->rows, change->stamps, change->priorities);
        former_.clear();
    }

  private:
    struct Former {
        std::vector<std::int64_t> rows, stamps;
        std::vector<double> priorities;
    };

    static const char* sample(void* self, std::uint64_t seed, std::uint64_t number, double beta) {
        auto& of = *static_cast<PyMinibatches*>(self);
        try {
            of.sampler_.sample({seed, number, 0}, of.batch_, of.before_, beta);
            return nullptr;
        } catch (const Nothing& error) {
            of.why_ = error.what();
            return of.why_.c_str();
        }
    }

    static const char* rank(void* self, const float* priorities) {
        auto& of = *static_cast<PyMinibatches*>(self);
        const std::size_t count = of.batch_.m;
        of.ranks_.resize(count);
        for (std::size_t i = 0; i < count; ++i) {
            of.ranks_[i] = std::pow(static_cast<double>(priorities[i]), of.alpha_);
            if (!std::isfinite(of.ranks_[i])) return "a priority is infinite or NaN";
        }
        const std::span rows(of.rows_, count), stamps(of.stamps_, count);
        of.former_.push_back({{rows.begin(), rows.end()}, {stamps.begin(), stamps.end()}, of.tree_->read(rows)});
        of.tree_->change(rows, stamps, of.ranks_);
        return nullptr;
    }

    nb::object sampler_object_, tree_object_;  // kept alive
    PySampler& sampler_;
    Bound batch_;
    PySumTree* tree_;
    double alpha_;
    kernels::Minibatches minibatches_;
    std::vector<std::uint64_t> before_;
    const std::int64_t* rows_ = nullptr;
    const std::int64_t* stamps_ = nullptr;
    std::vector<double> ranks_;
    std::vector<Former> former_;
    std::string why_;
};

}  // namespace

void bind_minibatches(nb::module_& module) {
    nb::class_<PyMinibatches>(module, "Minibatches")
        .def(nb::init<nb::object, const nb::dict&, nb::object, double>(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg())
        .def("before", &PyMinibatches::before)
        .def("capsule", &PyMinibatches::capsule)
        .def("forget", &PyMinibatches::forget)
        .def("take_back", &PyMinibatches::take_back);
}

}  // namespace penstock::replay
