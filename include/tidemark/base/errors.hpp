/// Whose mistake was it: the user's (exit 2), or ours and the machine's (exit 3)?
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tidemark {

/// A place in an input; line and column count from 1, 0 is "not known".
struct SourceLoc {
  std::string file;
  int line = 0;
  int column = 0;
  friend bool operator==(const SourceLoc&, const SourceLoc&) = default;
};

/// "big.yaml:7:13", or less where less is known.
std::string to_string(const SourceLoc& where);

/// The user's mistake: says where, what was wrong and what was expected. `what()` is the whole line,
/// "file:line:column: error: message", and one line whatever the message quotes.
class InputError : public std::runtime_error {
 public:
  InputError(SourceLoc where, const std::string& message);
  explicit InputError(const std::string& message) : InputError(SourceLoc{}, message) {}
  const SourceLoc& where() const { return where_; }
  /// Without the place, for one who knows it better.
  const std::string& message() const { return message_; }

 private:
  SourceLoc where_;
  std::string message_;
};

/// The machine's failure: an output that cannot be written, a full disk.
class OutputError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Ours: a broken invariant. On in every build.
class InternalError : public std::logic_error {
  using std::logic_error::logic_error;
};
void check(bool condition, std::string_view what);

/// The known name nearest to a misspelt one (edit distance), or "" when none is near.
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

}  // namespace tidemark
