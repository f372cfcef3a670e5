#include "tidemark/base/names.hpp"

namespace tidemark {

NameTable::NameTable(const NameTable& other) {
  for (const std::string& name : other.names_) id(name);
}

NameTable& NameTable::operator=(const NameTable& other) {
  NameTable copy(other);
  *this = std::move(copy);
  return *this;
}

NameId NameTable::id(std::string_view name) {
  if (const auto found = ids_.find(name); found != ids_.end()) return found->second;
  const auto id = static_cast<NameId>(names_.size());
  names_.emplace_back(name);
  ids_.emplace(names_.back(), id);
  return id;
}

}  // namespace tidemark
