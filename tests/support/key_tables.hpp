/// How do the tables of keys stand in docs/scenario.md?
#pragma once

#include <string>
#include <vector>

#include "tidemark/input/keys.hpp"

namespace tidemark::test {

/// Keys as a Markdown table: key, value, default, meaning.
std::string key_table(const std::vector<Key>& keys);

/// What docs/scenario.md must hold: each block's table below its name. Keys that all variants of a block share (a
/// policy's schedule) stand once, under the name alone.
struct DocTable {
  std::string name;
  std::string text;
};
std::vector<DocTable> doc_tables();

}  // namespace tidemark::test
