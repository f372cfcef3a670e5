// What does minimalloc's CSV hold? Columns id, lower, upper, size, and offset where addresses are given; alive in
// [lower, upper).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <unordered_set>

#include "held_events.hpp"
#include "unpacked.hpp"

namespace tidemark::recordings {
namespace {

constexpr std::array<std::string_view, 5> columns = {"id", "lower", "upper", "size", "offset"};
enum Column : std::size_t { id, lower, upper, size, offset };

std::vector<std::string_view> cells_of(std::string_view line) {
  std::vector<std::string_view> out;
  for (std::size_t begin = 0; begin <= line.size();) {
    const std::size_t end = std::min(line.find(',', begin), line.size());
    out.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

class Lifetimes {
 public:
  explicit Lifetimes(const std::string& path) : path_(path), file_(path) {
    next_line();
    const auto header = cells_of(line_);
    width_ = header.size();
    place_.fill(width_);
    for (std::size_t i = 0; i < width_; ++i) {
      const auto found = std::ranges::find(columns, header[i]);
      if (found == columns.end())
        fail(path_, 1, fmt::format("unknown column '{}'; expected id, lower, upper, size, offset", header[i]));
      std::size_t& place = place_[static_cast<std::size_t>(found - columns.begin())];
      if (place != width_) fail(path_, 1, fmt::format("column '{}' stands twice", header[i]));
      place = i;
    }
    for (const Column column : {id, lower, upper, size})
      if (place_[column] == width_) fail(path_, 1, fmt::format("column '{}' is missing", columns[column]));
  }

  HeldEvents read() {
    HeldEvents held;
    held.has_addresses = place_[offset] != width_;
    while (next_line()) read_row(held);
    // What ends at a time makes room for what begins then.
    std::ranges::stable_sort(held.events, {}, [](const HeldEvent& e) { return std::pair(e.time, e.bytes > 0); });
    return held;
  }

 private:
  bool next_line() {
    ++row_;
    if (!std::getline(file_, line_)) return false;
    if (line_.ends_with('\r')) line_.pop_back();
    return true;
  }

  void read_row(HeldEvents& held) {
    cells_ = cells_of(line_);
    if (cells_.size() != width_) fail(path_, row_, fmt::format("{} cells; expected {}", cells_.size(), width_));
    const std::string name(cells_[place_[id]]);
    if (!seen_.insert(name).second) fail(path_, row_, fmt::format("id '{}' stands twice", name));
    const std::int64_t begin = whole(lower), end = whole(upper), bytes = whole(size);
    if (end <= begin) fail(path_, row_, fmt::format("alive from {} to {}; expected an upper above lower", begin, end));
    if (bytes <= 0) fail(path_, row_, fmt::format("a block of {} bytes", bytes));
    const std::int64_t at = held.has_addresses ? whole(offset) : static_cast<std::int64_t>(held.names.size());
    if (at < 0) fail(path_, row_, "an offset below 0");
    const auto number = static_cast<std::int64_t>(held.names.size());
    held.names.push_back(name);
    held.events.push_back({row_, begin, static_cast<std::uint64_t>(at), bytes, -1, number});
    held.events.push_back({row_, end, static_cast<std::uint64_t>(at), -bytes, -1, number});
  }

  std::int64_t whole(Column column) const {
    const std::string_view text = cells_[place_[column]];
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
      fail(path_, row_, fmt::format("'{}' is not a whole number", text));
    return value;
  }

  std::string path_;
  UnpackedFile file_;
  std::string line_;
  std::vector<std::string_view> cells_;
  std::int64_t row_ = 0;
  std::size_t width_ = 0;
  std::array<std::size_t, columns.size()> place_{};  // width_: not there
  std::unordered_set<std::string> seen_;
};

}  // namespace

FormatPtr open_lifetimes_csv(const std::string& path) { return hand_out(Lifetimes(path).read()); }

}  // namespace tidemark::recordings
