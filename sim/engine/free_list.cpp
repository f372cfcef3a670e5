#include "tidemark/engine/free_list.hpp"

#include <algorithm>

#include "tidemark/base/errors.hpp"

namespace tidemark {

FreeList::Position& FreeList::Position::operator++() {
  if (++slot_ == list_->pages_[page_].size()) {
    ++page_;
    slot_ = 0;
  }
  return *this;
}

FreeList::Position& FreeList::Position::operator--() {
  if (slot_ == 0) slot_ = list_->pages_[--page_].size();
  --slot_;
  return *this;
}

FreeList::Position FreeList::find(const FreeBlock& key) const {
  const auto page = std::ranges::partition_point(pages_, [&](const Page& p) { return p.back() < key; });
  if (page == pages_.end()) return end();
  const auto slot = std::ranges::lower_bound(*page, key);
  return {*this, static_cast<std::size_t>(page - pages_.begin()), static_cast<std::size_t>(slot - page->begin())};
}

void FreeList::insert(const FreeBlock& block) {
  if (pages_.empty()) {
    pages_.emplace_back().reserve(page_size);
    pages_.back().push_back(block);
    return;
  }
  Position at = find(block);
  if (at == end()) at = {*this, pages_.size() - 1, pages_.back().size()};
  Page& page = pages_[at.page_];
  page.insert(page.begin() + static_cast<std::ptrdiff_t>(at.slot_), block);
  if (page.size() < page_size) return;
  const auto middle = page.begin() + page_size / 2;
  Page upper;
  upper.reserve(page_size);
  upper.assign(middle, page.end());
  page.erase(middle, page.end());
  pages_.insert(pages_.begin() + static_cast<std::ptrdiff_t>(at.page_) + 1, std::move(upper));
}

void FreeList::erase(const FreeBlock& block) {
  const Position at = find(block);
  check(at != end() && *at == block, "a free block is in its list");
  erase(at);
}

void FreeList::erase(Position at) {
  Page& page = pages_[at.page_];
  page.erase(page.begin() + static_cast<std::ptrdiff_t>(at.slot_));
  if (page.empty()) pages_.erase(pages_.begin() + static_cast<std::ptrdiff_t>(at.page_));
}

}  // namespace tidemark
