#include "tidemark/report/terminal.hpp"

#include <algorithm>
#include <array>

#include "tidemark/report/json_writer.hpp"

namespace tidemark {
namespace {

bool starts_code_point(char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }

/// Byte position of the n-th code point.
std::size_t byte_of(std::string_view text, std::size_t n) {
  std::size_t i = 0;
  for (; i < text.size(); ++i)
    if (starts_code_point(text[i]) && n-- == 0) break;
  return i;
}

}  // namespace

std::string printable(std::string_view text) {
  const std::string valid = valid_utf8(text);
  std::string out;
  out.reserve(valid.size());
  for (std::size_t i = 0; i < valid.size(); ++i) {
    const auto byte = static_cast<unsigned char>(valid[i]);
    const bool high = byte == 0xC2 && static_cast<unsigned char>(valid[i + 1]) < 0xA0;  // U+0080 to U+009F
    if (high) ++i;
    if (high || byte < 0x20 || byte == 0x7F)
      out += '?';
    else
      out += valid[i];
  }
  return out;
}

std::string painted(const TerminalStyle& style, Ink ink, std::string_view text) {
  constexpr std::array<std::string_view, 9> codes = {"0", "1", "2", "31", "32", "33", "34", "35", "36"};
  if (!style.color || ink == Ink::plain || text.empty()) return std::string(text);
  return "\x1b[" + std::string(codes[static_cast<std::size_t>(ink)]) + "m" + std::string(text) + "\x1b[0m";
}

std::size_t columns(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, starts_code_point));
}

std::string left(std::string_view text, std::size_t width) {
  const std::size_t taken = columns(text);
  return std::string(text) + std::string(width > taken ? width - taken : 0, ' ');
}

std::string right(std::string_view text, std::size_t width) {
  const std::size_t taken = columns(text);
  return std::string(width > taken ? width - taken : 0, ' ') + std::string(text);
}

std::string shortened(const TerminalStyle& style, std::string_view text, std::size_t width) {
  const std::string_view gap = style.ascii ? ".." : "…";
  const std::size_t taken = columns(text);
  if (taken <= width) return std::string(text);
  const std::size_t room = width - std::min(width, columns(gap));
  const std::size_t tail = room / 2 + room % 2;
  return std::string(text.substr(0, byte_of(text, room - tail))) + std::string(gap) +
         std::string(text.substr(byte_of(text, taken - tail)));
}

std::string wrapped(const TerminalStyle& style, std::string_view lead, std::string_view text, Ink ink, Ink lead_ink) {
  const std::size_t indent = columns(lead);
  const std::size_t room = static_cast<std::size_t>(std::max(style.width, 40)) - std::min<std::size_t>(indent, 20);
  std::string out;
  std::string start = painted(style, lead_ink, lead);
  while (!text.empty()) {
    std::string_view line = text;
    if (columns(text) > room) {
      const std::size_t limit = byte_of(text, room);
      const std::size_t space = text.rfind(' ', limit);
      line = text.substr(0, space == std::string_view::npos || space == 0 ? limit : space);
    }
    text.remove_prefix(line.size());
    while (text.starts_with(' ')) text.remove_prefix(1);
    while (line.ends_with(' ')) line.remove_suffix(1);
    out += start + painted(style, ink, line) + "\n";
    start = std::string(indent, ' ');
  }
  return out;
}

}  // namespace tidemark
