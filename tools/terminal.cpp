#include "terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace tidemark::cli {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

int width(bool terminal, int fallback) {
  const std::string_view text = variable("COLUMNS");
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value > 0 && value <= 1000) return value;
  winsize size{};
  if (terminal && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return fallback;
}

}  // namespace

TerminalStyle terminal_style(bool ascii) {
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  TerminalStyle style{.ascii = ascii};
  style.width = width(terminal, style.width);
  style.color = terminal && variable("NO_COLOR").empty() && variable("TERM") != "dumb";
  return style;
}

}  // namespace tidemark::cli
