/// What does a pickle hold, if it holds nothing but containers, strings and numbers?
///
/// A pickle is a program for a small stack machine, and Python's runs whatever code it names. This one knows only the
/// opcodes that make plain values; anything else is an InputError, and nothing is ever called. Nesting costs no stack
/// of ours, lengths are believed only as the bytes come, and the number of values has a limit.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tidemark::recordings {

struct PickleLimits {
  std::size_t values = 64'000'000;          // also of what is on the stack or remembered
  std::size_t text = std::size_t{1} << 30;  // bytes of all strings together
};

/// A number, or where its contents stand in the Pickle.
struct PickleValue {
  enum class Kind : std::uint8_t { none, boolean, integer, real, text, list, dict };  // a tuple is a list
  Kind kind = Kind::none;
  union {
    std::int64_t integer = 0;  // of a boolean too
    double real;
    std::size_t index;
  };
};

class Pickle {
 public:
  using List = std::vector<PickleValue>;
  using Dict = std::vector<std::pair<PickleValue, PickleValue>>;

  /// Protocols 2 to 5. Throws InputError naming the byte.
  Pickle(std::istream& in, const std::string& path, const PickleLimits& limits = {});

  PickleValue root() const { return root_; }
  const std::string& text(PickleValue value) const { return texts_[value.index]; }
  const List& list(PickleValue value) const { return lists_[value.index]; }
  const Dict& dict(PickleValue value) const { return dicts_[value.index]; }
  /// The member of a dict; nothing (Kind::none) when it is no dict or has none of this name.
  PickleValue member(PickleValue dict, std::string_view name) const;

 private:
  friend class Unpickler;
  std::vector<std::string> texts_;
  std::vector<List> lists_;
  std::vector<Dict> dicts_;
  PickleValue root_;
};

}  // namespace tidemark::recordings
