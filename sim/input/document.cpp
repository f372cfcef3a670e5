#include "tidemark/input/document.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace tidemark {
namespace {

constexpr std::size_t shown_bytes = 48;

/// The longest prefix of at most `most` bytes that does not cut a UTF-8 character.
std::string_view prefix(std::string_view text, std::size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0U) == 0x80U) --most;
  return text.substr(0, most);
}

/// Bytes of the UTF-8 character that starts here; 0 when none does.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const std::size_t length = first < 0x80   ? 1
                             : first < 0xC2 ? 0
                             : first < 0xE0 ? 2
                             : first < 0xF0 ? 3
                             : first < 0xF5 ? 4
                                            : 0;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0U) != 0x80U) return 0;
  // Neither longer than needed, nor half of a UTF-16 pair, nor past the last character.
  const bool valid = !(first == 0xE0 && byte(1) < 0xA0) && !(first == 0xED && byte(1) > 0x9F) &&
                     !(first == 0xF0 && byte(1) < 0x90) && !(first == 0xF4 && byte(1) > 0x8F);
  return valid ? length : 0;
}

void refuse_directory(const std::string& path, std::string_view expected) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  const std::string wanted = "; expected " + std::string(expected);
  if (!std::filesystem::exists(status)) throw InputError({path}, "no such file" + wanted);
  if (std::filesystem::is_directory(status)) throw InputError({path}, "is a directory" + wanted);
}

}  // namespace

DocPtr DocNode::find(std::string_view key) const {
  const auto found = std::ranges::find_if(entries, [&](const DocEntry& entry) { return entry.key->text == key; });
  return found == entries.end() ? nullptr : found->value;
}

std::string shown(std::string_view text) {
  std::string out;
  for (const char c : prefix(text, shown_bytes)) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? ' ' : c;
  return text.size() > shown_bytes ? out + "..." : out;
}

std::string shown(const DocNode& node) {
  switch (node.kind) {
    case DocNode::Kind::null:
      return "nothing";
    case DocNode::Kind::list:
      return "a list";
    case DocNode::Kind::map:
      return "a map";
    case DocNode::Kind::scalar:
      break;
  }
  const char quote = node.quoted ? '"' : '\'';
  return quote + shown(std::string_view(node.text)) + quote;
}

std::string read_text(const std::string& path, std::int64_t limit, std::string_view expected) {
  refuse_directory(path, expected);
  const std::string wanted = "; expected " + std::string(expected);
  std::ifstream in(path, std::ios::binary);
  if (!in) throw InputError({path}, "cannot be opened" + wanted);
  std::string text;
  std::string chunk(std::size_t{1} << 16U, '\0');
  while (in.read(chunk.data(), static_cast<std::streamsize>(chunk.size())), in.gcount() > 0) {
    text.append(chunk, 0, static_cast<std::size_t>(in.gcount()));
    if (static_cast<std::int64_t>(text.size()) > limit)
      throw InputError({path}, "is larger than " + std::to_string(limit >> 20U) + " MiB" + wanted + " below that size");
  }
  if (in.bad()) throw InputError({path}, "cannot be read" + wanted);
  if (text.empty()) throw InputError({path}, "is empty" + wanted);
  check_text(text, path);
  return text;
}

void check_text(std::string_view text, const std::string& file) {
  int line = 1;
  std::size_t line_start = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const bool control = (byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7F;
    const std::size_t length = control ? 0 : utf8_length(text.substr(at, 4));
    if (length == 0)
      throw InputError({file, line, static_cast<int>(at - line_start) + 1},
                       fmt::format("byte 0x{:02X} does not belong here; expected UTF-8 text", byte));
    if (byte == '\n') {
      ++line;
      line_start = at + 1;
    }
    at += length;
  }
}

std::string resolve_path(const DocNode& named_in, const std::string& path) {
  const std::string directory = named_in.source ? named_in.source->directory : "";
  return (std::filesystem::path(directory) / path).lexically_normal().string();
}

DocPtr read_yaml(const std::string& path, std::string_view expected, std::int64_t limit) {
  const std::string text = read_text(path, limit, expected);
  return parse_yaml(text, {path, std::filesystem::path(path).parent_path().string()});
}

DocPtr read_json(const std::string& path, std::string_view expected) {
  const std::string text = read_text(path, max_document_bytes, expected);
  return parse_json(text, {path, std::filesystem::path(path).parent_path().string()});
}

}  // namespace tidemark
