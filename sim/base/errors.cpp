#include "tidemark/base/errors.hpp"

#include <algorithm>
#include <numeric>

namespace tidemark {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

/// What a message quotes (a file's name, a bad value) may hold line ends and other control characters.
std::string on_one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  return text;
}

}  // namespace

std::string to_string(const SourceLoc& where) {
  std::string out = where.file;
  if (where.line > 0) out += ":" + std::to_string(where.line);
  if (where.line > 0 && where.column > 0) out += ":" + std::to_string(where.column);
  return out;
}

InputError::InputError(SourceLoc where, const std::string& message)
    : std::runtime_error(on_one_line((where.file.empty() ? "" : to_string(where) + ": ") + "error: " + message)),
      where_(std::move(where)),
      message_(message) {}

void check(bool condition, std::string_view what) {
  if (!condition) throw InternalError(std::string(what));
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  if (name.size() > 64) return "";
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : known)
    if (const std::size_t distance = edit_distance(name, candidate); distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  return best;
}

}  // namespace tidemark
