/// What can the terminal show, and how does a text fit into its columns?
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tidemark {

/// The caller looks at the terminal and the environment; nothing here does.
struct TerminalStyle {
  int width = 100;     // columns
  bool color = false;  // ANSI escapes
  bool ascii = false;  // no character past 126
};

enum class Ink : std::uint8_t { plain, bold, dim, red, green, yellow, blue, magenta, cyan };

/// A name from a file, which must not give the terminal orders: control characters, those past U+007F included, as "?";
/// bytes that are no UTF-8 as U+FFFD.
std::string printable(std::string_view text);

/// The text in that ink; unchanged without color.
std::string painted(const TerminalStyle& style, Ink ink, std::string_view text);

/// Columns a text takes: its code points.
std::size_t columns(std::string_view text);
std::string left(std::string_view text, std::size_t width);   // padded on the right
std::string right(std::string_view text, std::size_t width);  // padded on the left
/// The text in at most `width` columns; a long one loses its middle, since names differ at their ends.
std::string shortened(const TerminalStyle& style, std::string_view text, std::size_t width);

/// Lines of at most the style's width, ending in "\n": the lead, then the text, with the rest below its start.
std::string wrapped(const TerminalStyle& style, std::string_view lead, std::string_view text, Ink ink = Ink::plain,
                    Ink lead_ink = Ink::plain);

}  // namespace tidemark
