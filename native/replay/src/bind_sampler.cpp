#include "bind_sampler.hpp"

#include <string>
#include <vector>

#include "py_sampler.hpp"

namespace penstock::replay {

void bind_sampler(nb::module_& module) {
    nb::class_<PySampler>(module, "Sampler")
        .def(nb::init<nb::handle, const nb::dict&, std::size_t, std::size_t, const std::vector<std::string>&, int, double,
                      float, const Stacks&, nb::object, const std::optional<std::string>&>(),
             nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
             nb::arg().none(), nb::arg().none())
        .def("sample", nb::overload_cast<std::uint64_t, std::uint64_t, const nb::dict&, const Before&, double>(&PySampler::sample),
             nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg())
        .def("sequences", &PySampler::sequences, nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg());
    module.def("levels", [] {
        std::vector<std::string> names;
        for (const Level* known : levels()) names.emplace_back(known->name);
        return names;
    });
}

}  // namespace penstock::replay
