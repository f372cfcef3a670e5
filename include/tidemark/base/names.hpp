/// How do millions of ops and tensors carry names without millions of strings?
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

namespace tidemark {

using NameId = std::uint32_t;

/// Each distinct name once, numbered in the order of first use. Name 0 is the empty name.
class NameTable {
 public:
  NameTable() { id(""); }
  NameTable(const NameTable& other);
  NameTable& operator=(const NameTable& other);
  NameTable(NameTable&&) = default;
  NameTable& operator=(NameTable&&) = default;
  ~NameTable() = default;

  NameId id(std::string_view name);
  const std::string& operator[](NameId id) const { return names_[id]; }
  std::size_t size() const { return names_.size(); }

 private:
  std::deque<std::string> names_;  // a deque keeps the strings where the views point
  std::unordered_map<std::string_view, NameId> ids_;
};

}  // namespace tidemark
