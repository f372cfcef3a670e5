#include "tidemark/report/fragmentation_text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tidemark {
namespace {

/// "a, b, c and 4 more".
std::string first_few(const std::vector<std::string>& names) {
  constexpr std::size_t shown = 3;
  std::string out;
  for (std::size_t i = 0; i < std::min(shown, names.size()); ++i) out += (i == 0 ? "" : ", ") + printable(names[i]);
  return names.size() > shown ? fmt::format("{} and {} more", out, names.size() - shown) : out;
}

}  // namespace

std::string fragmentation_text(const Fragmentation& f, const TerminalStyle& style) {
  std::string out = "\n" + painted(style, Ink::bold, "The reserved bytes at their highest") + "\n";
  const std::string when = f.op.empty() ? "at the start" : f.phase + " of " + printable(f.op);
  out += wrapped(style, "  ", fmt::format("{} in {}, step {}:", pretty(f.reserved), when, f.step));
  const auto part = [&](Bytes bytes, const std::string& what) {
    if (bytes.count > 0) out += wrapped(style, "  " + right(pretty(bytes), 9) + "  ", what);
  };
  part(f.live, "live");
  part(f.rounding, "rounding, and rests that are not split off");
  part(f.waiting, "freed, until another stream has passed");
  part(f.free, fmt::format("in {} {} between blocks in use, the largest {}", f.holes, f.holes == 1 ? "hole" : "holes",
                           pretty(f.largest_free)));
  part(f.unused, "in segments that nothing is in");
  if (f.segments.empty()) return out;
  out += painted(style, Ink::dim, "  " + right("free", 9) + "  " + right("segment", 9) + "  held apart by") + "\n";
  constexpr std::size_t shown = 5;
  for (std::size_t i = 0; i < std::min(shown, f.segments.size()); ++i) {
    const SplitSegment& segment = f.segments[i];
    out += wrapped(style, "  " + right(pretty(segment.free), 9) + "  " + right(pretty(segment.bytes), 9) + "  ",
                   first_few(segment.between));
  }
  if (f.segments.size() > shown) out += fmt::format("  {:>9}  more\n", f.segments.size() - shown);
  return out;
}

}  // namespace tidemark
