/// How often has this program asked the heap for memory?
#pragma once

#include <cstdint>

namespace tidemark::native {

/// Calls of operator new so far, in a program that is linked with heap.cpp.
std::int64_t heap_calls();

}  // namespace tidemark::native
