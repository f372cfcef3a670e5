/// Does a dotted name have one of some words as a component? Internal to the transformer family.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace tidemark {

inline bool has_component(std::string_view name, const std::vector<std::string>& words) {
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    if (std::ranges::find(words, name.substr(begin, end - begin)) != words.end()) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace tidemark
