#include "arena.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace tidemark::native {
namespace {

constexpr std::size_t alignment = 64;
constexpr int all_ones = 0xff;  // a NaN in every float

std::size_t rounded(std::int64_t bytes) {
  return (static_cast<std::size_t>(bytes) + alignment - 1) / alignment * alignment;
}

}  // namespace

Arena::Arena(std::size_t reserve_bytes) : reserved_(reserve_bytes) {
  void* range = ::mmap(nullptr, reserved_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) throw std::bad_alloc();
  base_ = static_cast<std::byte*>(range);
}

Arena::~Arena() { ::munmap(base_, reserved_); }

Arena::Shelf& Arena::shelf(std::size_t bytes) {
  const auto place = std::ranges::lower_bound(shelves_, bytes, {}, &Shelf::bytes);
  if (place != shelves_.end() && place->bytes == bytes) return *place;
  return *shelves_.insert(place, Shelf{bytes});
}

void* Arena::take(std::int64_t bytes) {
  const std::size_t size = rounded(bytes);
  Shelf& from = shelf(size);
  void* block = from.first;
  if (block != nullptr) {
    std::memcpy(&from.first, block, sizeof from.first);
  } else {
    if (size > reserved_ - carved_) throw std::bad_alloc();
    block = base_ + carved_;
    carved_ += size;
  }
  live_ += bytes;
  high_water_ = std::max(high_water_, live_);
  if (poison_) std::memset(block, all_ones, size);
  return block;
}

void Arena::give_back(void* block, std::int64_t bytes) {
  const std::size_t size = rounded(bytes);
  if (poison_) std::memset(block, all_ones, size);
  Shelf& to = shelf(size);
  std::memcpy(block, &to.first, sizeof to.first);
  to.first = block;
  live_ -= bytes;
}

}  // namespace tidemark::native
