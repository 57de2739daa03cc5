// The extension penstock.replay._native.
#include <nanobind/nanobind.h>

#include "bind_sampler.hpp"
#include "bind_tree.hpp"

NB_MODULE(_native, module) {
    module.doc() = "Minibatches from tables in shared memory.";
    penstock::replay::bind_tree(module);
    penstock::replay::bind_sampler(module);
    penstock::replay::bind_minibatches(module);
}
