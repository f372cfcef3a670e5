/// Which keys may a scenario hold, with which values, defaults and meanings?
///
/// One table drives the readers' known keys, `tidemark schema` and the check of docs/scenario.md.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tidemark {

enum class ValueType : std::uint8_t {
  text,       // a name
  path,       // relative to the file that names it
  boolean,    // true or false
  integer,    // whole, without a unit
  number,     // decimal from 0 to 1
  factor,     // decimal above 0
  choice,     // one of `choices`
  dtype,      // a data type, by name
  size,       // bytes with a unit
  flops,      // FLOPs with a unit
  time,       // ns, us, ms, s
  flop_rate,  // FLOP/s
  byte_rate,  // B/s
  block,      // a map of its own; `block` names its table
  texts,      // a text or a list of texts
  integers,   // an integer or a list of integers
  ranges,     // blocks: 3, or "0-3,8-11"
  steps,      // of a plan file
  program,    // part of a forward program; `block` names the table of its entries
};

struct Key {
  std::string_view name;
  ValueType type = ValueType::text;
  std::string_view fallback = {};  // what holds when it is not given; "" is required
  std::string_view meaning = {};
  std::vector<std::string_view> choices = {};
  std::string_view block = {};
  bool per_layer = false;  // one value, or a list of one a layer
};

/// A map of the input: "model" of variant "chain" knows other keys than that of variant "mlp".
struct Block {
  std::string_view name;
  std::string_view variant;
  std::vector<Key> keys;
  const Key* find(std::string_view key) const;
};

/// All blocks; the scenario itself is the block "scenario".
const std::vector<Block>& blocks();
/// Throws InternalError for a block that is not in the table.
const Block& block(std::string_view name, std::string_view variant = "");
/// The keys that a path such as "policy.interval" names, one for each variant of a block that has it.
std::vector<const Key*> keys_at(std::string_view path);
/// The variants of a block, in table order.
std::vector<std::string> variants(std::string_view name);

}  // namespace tidemark
