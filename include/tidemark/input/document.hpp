/// What did the user write, and where does each value stand?
///
/// YAML and JSON become one small tree that keeps file, line and column of every value. What a strict reader must not
/// accept is refused here, before anything is interpreted: repeated keys, merge keys, tags, a second document, nesting
/// or aliases without bound, files that are too large.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tidemark/base/errors.hpp"

namespace tidemark {

/// Where a document came from. Relative paths in it start at `directory`; "" is the working directory.
struct DocSource {
  std::string name;  // of messages: a path, or "--set policy.kind=full"
  std::string directory;
};

struct DocNode;
using DocPtr = std::shared_ptr<const DocNode>;

struct DocEntry {
  DocPtr key;
  DocPtr value;
};

struct DocNode {
  enum class Kind : std::uint8_t { null, scalar, list, map };
  Kind kind = Kind::null;
  std::string text;               // of a scalar, without its quotes
  bool quoted = false;            // "8" is a text, 8 is a number
  std::vector<DocPtr> items;      // of a list
  std::vector<DocEntry> entries;  // of a map, in the order written, no key twice
  std::shared_ptr<const DocSource> source;
  int line = 0, column = 0;  // from 1; 0 is not known
  std::int64_t size = 1;     // values in this tree, aliases expanded

  SourceLoc where() const { return {source ? source->name : "", line, column}; }
  /// The value of a key; null without one.
  DocPtr find(std::string_view key) const;
};

/// For messages: 'two', "2" when quoted, "a list", "a map", "nothing". One line, cut when long.
std::string shown(const DocNode& node);
/// Any text as a message may quote it: one line, cut when long.
std::string shown(std::string_view text);

/// The largest document (numbers for many layers go into a CSV), the deepest nesting, and the most values that are
/// read.
inline constexpr std::int64_t max_document_bytes = 4 << 20;
inline constexpr int max_document_depth = 64;
inline constexpr std::int64_t max_document_values = 2'000'000;

/// The bytes of a file. `expected` says in errors what it should have been: "a scenario (YAML)".
/// Throws InputError for a file that is missing, a directory, empty, unreadable, larger than `limit` bytes, or no text.
std::string read_text(const std::string& path, std::int64_t limit, std::string_view expected);

/// Throws InputError at the first byte that is a control character other than tab and line ends (parsers take some of
/// them for the end), or no UTF-8.
void check_text(std::string_view text, const std::string& file);

/// A path as its document means it: relative to the document's directory.
std::string resolve_path(const DocNode& named_in, const std::string& path);

/// The tree of a YAML (or JSON) text. Throws InputError for what is not valid or not accepted.
DocPtr parse_yaml(const std::string& text, const DocSource& source);
DocPtr parse_json(const std::string& text, const DocSource& source);

DocPtr read_yaml(const std::string& path, std::string_view expected, std::int64_t limit = max_document_bytes);
DocPtr read_json(const std::string& path, std::string_view expected);

}  // namespace tidemark
