// Replaces operator new by one that counts. It has a file of its own, because the compiler warns of free() where it
// inlines operator delete.
#include "counted_new.hpp"

#include <cstdlib>
#include <new>

namespace penstock::test {

std::atomic<std::size_t> allocations{0};

namespace {

void* counted(void* memory) {
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    ++allocations;
    return memory;
}

}  // namespace
}  // namespace penstock::test

// The other forms of new and delete call these.
void* operator new(std::size_t nbytes) { return penstock::test::counted(std::malloc(nbytes)); }
void* operator new(std::size_t nbytes, std::align_val_t alignment) {
    const auto unit = static_cast<std::size_t>(alignment);
    return penstock::test::counted(std::aligned_alloc(unit, (nbytes + unit - 1) / unit * unit));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
