// What does HTA's event CSV hold? Header t_us,addr,bytes,total_allocated,total_reserved.
#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include <fmt/format.h>

#include "format.hpp"
#include "unpacked.hpp"

namespace tidemark::recordings {
namespace {

class EventCsv : public Format {
 public:
  explicit EventCsv(const std::string& path) : path_(path), file_(path) { std::getline(file_, line_); }

  std::optional<RecordedEvent> next() override {
    ++row_;
    if (!std::getline(file_, line_)) return std::nullopt;
    if (line_.ends_with('\r')) line_.pop_back();
    std::array<std::string_view, 5> cells;
    std::string_view rest = line_;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::size_t comma = rest.find(',');
      if ((comma == std::string_view::npos) != (i + 1 == cells.size()))
        fail(path_, row_, "expected t_us,addr,bytes,total_allocated,total_reserved");
      cells[i] = rest.substr(0, comma);
      rest.remove_prefix(std::min(rest.size(), cells[i].size() + 1));
    }
    const std::int64_t bytes = whole(cells[2]);
    if (bytes == INT64_MIN) fail(path_, row_, fmt::format("a block of {} bytes", bytes));
    RecordedEvent event;
    event.row = row_;
    const std::int64_t time_us = whole(cells[0]);
    if (time_us < 0 || time_us > INT64_MAX / 1000) fail(path_, row_, fmt::format("a time of {} us", time_us));
    event.time = time_us * 1000;
    event.what = bytes < 0 ? RecordedEvent::What::free : RecordedEvent::What::alloc;
    event.block = static_cast<std::uint64_t>(whole(cells[1], 16));
    event.bytes = Bytes{bytes < 0 ? -bytes : bytes};
    event.total = Bytes{whole(cells[3])};
    event.reserved = Bytes{whole(cells[4])};
    return event;
  }
  bool has_addresses() const override { return true; }

 private:
  std::int64_t whole(std::string_view text, int base = 10) const {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (error != std::errc() || end != text.data() + text.size() || text.empty())
      fail(path_, row_, fmt::format("'{}' is not a whole number", text));
    return value;
  }

  std::string path_;
  UnpackedFile file_;
  std::string line_;
  std::int64_t row_ = 1;
};

}  // namespace

FormatPtr open_event_csv(const std::string& path) { return std::make_unique<EventCsv>(path); }

}  // namespace tidemark::recordings
