#include "heap.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<std::int64_t> calls{0};  // of the replaced operators below, which can be nothing but global
}

namespace tidemark::native {
std::int64_t heap_calls() { return calls.load(); }
}  // namespace tidemark::native

void* operator new(std::size_t bytes) {
  ++calls;
  if (void* block = std::malloc(bytes == 0 ? 1 : bytes)) return block;
  throw std::bad_alloc();
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }
