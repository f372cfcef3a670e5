/// Which free block is the smallest that fits?
///
/// A sorted list in pages: one page up to 64 blocks, which is what a training step has; a thousand pages after a
/// thousand times as many. Finding is two binary searches, a change moves half a page.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "tidemark/base/units.hpp"

namespace tidemark {

using BlockId = std::uint32_t;

struct FreeBlock {
  Bytes size;
  std::int64_t address = 0;
  BlockId block = 0;
  /// By size, then by address; no two free blocks share an address.
  friend constexpr std::strong_ordering operator<=>(const FreeBlock& a, const FreeBlock& b) {
    if (const auto by_size = a.size <=> b.size; by_size != 0) return by_size;
    return a.address <=> b.address;
  }
  friend constexpr bool operator==(const FreeBlock& a, const FreeBlock& b) {
    return a.size == b.size && a.address == b.address;
  }
};

class FreeList {
 public:
  /// A place in the list; any change of the list ends it.
  class Position {
   public:
    const FreeBlock& operator*() const { return list_->pages_[page_][slot_]; }
    const FreeBlock* operator->() const { return &**this; }
    Position& operator++();
    Position& operator--();
    friend bool operator==(const Position&, const Position&) = default;

   private:
    friend class FreeList;
    Position(const FreeList& list, std::size_t page, std::size_t slot) : list_(&list), page_(page), slot_(slot) {}
    const FreeList* list_;
    std::size_t page_;
    std::size_t slot_;
  };

  Position begin() const { return {*this, 0, 0}; }
  Position end() const { return {*this, pages_.size(), 0}; }
  bool empty() const { return pages_.empty(); }
  /// The first block of at least `size` bytes, the lowest address first.
  Position at_least(Bytes size) const { return find({size, 0, 0}); }
  void insert(const FreeBlock& block);
  /// The block must be in the list.
  void erase(const FreeBlock& block);
  void erase(Position at);

 private:
  using Page = std::vector<FreeBlock>;
  static constexpr std::size_t page_size = 64;
  Position find(const FreeBlock& key) const;

  std::vector<Page> pages_;  // none is empty
};

}  // namespace tidemark
