/// Which elements does a long JSON array hold, one at a time?
///
/// Finds where each begins and ends, and leaves it to a parser to read it: neither the array nor what stands around it
/// is ever held.
#pragma once

#include <cstdint>
#include <istream>
#include <string>

namespace tidemark::recordings {

class JsonElements {
 public:
  /// Of the array that the text is, or, when `member` is not empty, of that member of the object that it is. Throws
  /// InputError naming the element after which the text is damaged or cut off, or which is too long or nested too deep.
  JsonElements(std::istream& in, std::string path, const std::string& member);

  /// The text of the next element; false at the end of the array, after what follows it has been read too.
  bool next(std::string& element);
  /// Number of the element handed out last, from 1.
  std::int64_t row() const { return row_; }

 private:
  int get();
  int get_solid();
  void expect(char wanted, int found) const;
  void value(int first, std::string* text);
  void string_rest(std::string* text);
  void take(int c, std::string* text) const;
  /// Up to the array of this name, or, with "", to the object's end.
  void seek_member(const std::string& member);
  void end_of_text();
  [[noreturn]] void fail(const std::string& message) const;

  std::istream& in_;
  std::string path_;
  bool in_object_;
  bool is_first_ = true;
  int held_;  // a character read too far
  std::int64_t row_ = 0;
};

}  // namespace tidemark::recordings
