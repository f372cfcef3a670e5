#include "json_elements.hpp"

#include "format.hpp"

namespace tidemark::recordings {
namespace {

constexpr int none = -2;
constexpr int end_of_file = std::char_traits<char>::eof();
constexpr int deepest = 64;
constexpr std::size_t longest = std::size_t{1} << 20;

bool is_space(int c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

}  // namespace

JsonElements::JsonElements(std::istream& in, std::string path, const std::string& member)
    : in_(in), path_(std::move(path)), in_object_(!member.empty()), held_(none) {
  if (in_object_) {
    expect('{', get_solid());
    seek_member(member);
  } else {
    expect('[', get_solid());
  }
}

bool JsonElements::next(std::string& element) {
  element.clear();
  int c = get_solid();
  if (c == ']') {
    end_of_text();
    return false;
  }
  if (!is_first_) {
    expect(',', c);
    c = get_solid();
  }
  is_first_ = false;
  ++row_;
  value(c, &element);
  return true;
}

void JsonElements::end_of_text() {
  if (in_object_) seek_member("");
  if (get_solid() != end_of_file) fail("text after the end");
}

void JsonElements::seek_member(const std::string& member) {
  for (bool is_first = !member.empty();; is_first = false) {
    int c = get_solid();
    if (c == '}' && member.empty()) return;
    if (c == '}') fail("no member '" + member + "'");
    if (!is_first) {
      expect(',', c);
      c = get_solid();
    }
    expect('"', c);
    std::string name;
    string_rest(&name);
    name.pop_back();
    expect(':', get_solid());
    c = get_solid();
    if (!member.empty() && name == member) {
      expect('[', c);
      return;
    }
    value(c, nullptr);
  }
}

/// A whole value from its first character on.
void JsonElements::value(int first, std::string* text) {
  int depth = 0;
  for (int c = first;; c = get()) {
    if (c == end_of_file) fail("the JSON is cut off after this event");
    if (depth == 0 && (c == ',' || c == ']' || c == '}' || c == ':')) fail("a value is missing");
    take(c, text);
    if (c == '"') string_rest(text);
    if (c == '[' || c == '{') {
      if (++depth > deepest) fail("nested too deep");
    } else if (c == ']' || c == '}') {
      --depth;
    }
    if (depth > 0) continue;
    if (c == '"' || c == ']' || c == '}') return;
    // a number or a word ends before what follows it
    const int following = get();
    held_ = following;
    if (is_space(following) || following == ',' || following == ']' || following == '}') return;
  }
}

/// Behind the opening quote; takes the closing one.
void JsonElements::string_rest(std::string* text) {
  for (;;) {
    int c = get();
    if (c == end_of_file) fail("the JSON is cut off after this event");
    take(c, text);
    if (c == '"') return;
    if (c != '\\') continue;
    c = get();
    if (c == end_of_file) fail("the JSON is cut off after this event");
    take(c, text);
  }
}

void JsonElements::take(int c, std::string* text) const {
  if (!text) return;
  if (text->size() == longest) fail("longer than 1 MiB");
  *text += static_cast<char>(c);
}

int JsonElements::get() {
  if (held_ == none) return in_.rdbuf()->sbumpc();
  const int c = held_;
  held_ = none;
  return c;
}

int JsonElements::get_solid() {
  int c = get();
  while (is_space(c)) c = get();
  return c;
}

void JsonElements::expect(char wanted, int found) const {
  if (found == end_of_file) fail("the JSON is cut off after this event");
  if (found != wanted)
    fail(std::string("damaged JSON: expected '") + wanted + "', not '" + static_cast<char>(found) + "'");
}

void JsonElements::fail(const std::string& message) const { recordings::fail(path_, row_, message); }

}  // namespace tidemark::recordings
