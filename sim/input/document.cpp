#include "tidemark/input/document.hpp"

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
  return text;
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
