#include "tidemark/input/recording.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <array>
#include <charconv>
#include <deque>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <streambuf>
#include <unordered_map>
#include <vector>

#include "tidemark/base/errors.hpp"
#include "tidemark/input/timeline_file.hpp"

namespace tidemark {
namespace {

constexpr int autograd_categories = 8;  // of the raw timeline

[[noreturn]] void fail(const std::string& path, std::int64_t row, const std::string& message) {
  throw InputError({path, static_cast<int>(row), 0}, message);
}

/// A file, unpacked on the way when it is gzipped.
class Unpacked : public std::streambuf {
 public:
  explicit Unpacked(const std::string& path)
      : path_(path), file_(gzopen(path.c_str(), "rb"), &gzclose), buffer_(1U << 16) {
    if (!file_) throw InputError({path}, "cannot be read; expected a recording");
  }
  const std::string& path() const { return path_; }
  void at_row(std::int64_t row) { row_ = row; }

 protected:
  int_type underflow() override {
    const int size = gzread(file_.get(), buffer_.data(), static_cast<unsigned>(buffer_.size()));
    int error = Z_OK;
    gzerror(file_.get(), &error);
    if (size < 0 || error < 0) fail(path_, row_, "the compressed file is cut off or damaged after this row");
    if (size == 0) return traits_type::eof();
    setg(buffer_.data(), buffer_.data(), buffer_.data() + size);
    return traits_type::to_int_type(*gptr());
  }

 private:
  std::string path_;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file_;
  std::vector<char> buffer_;
  std::int64_t row_ = 0;
};

/// Is what is recorded possible at all?
class Checker {
 public:
  Checker(std::string path, const RecordedSink& sink) : path_(std::move(path)), sink_(sink) {}

  /// `address` of a block that occupies [address, address + bytes).
  void take(const RecordedEvent& event, bool has_addresses) {
    if (event.bytes.count <= 0) fail(path_, event.row, fmt::format("a block of {} bytes", event.bytes.count));
    if (any_ && event.time < time_)
      fail(path_, event.row, fmt::format("time goes back from {} to {}", time_, event.time));
    if (!any_ && event.total)
      total_ = *event.total - (event.what == RecordedEvent::What::alloc ? event.bytes : Bytes{} - event.bytes);
    any_ = true;
    time_ = event.time;
    if (event.what == RecordedEvent::What::alloc) {
      if (has_addresses) refuse_overlap(event);
      if (!live_.emplace(event.block, event.bytes).second)
        fail(path_, event.row, fmt::format("block {} is allocated while it is alive", event.block));
      total_ += event.bytes;
    } else if (event.what == RecordedEvent::What::free) {
      const auto found = live_.find(event.block);
      if (found == live_.end()) fail(path_, event.row, fmt::format("block {} is freed and was not alive", event.block));
      if (found->second != event.bytes)
        fail(path_, event.row,
             fmt::format("{} bytes are freed of a block of {}", event.bytes.count, found->second.count));
      live_.erase(found);
      if (has_addresses) used_.erase(event.block);
      total_ -= event.bytes;
    }
    if (event.total && *event.total != total_)
      fail(path_, event.row, fmt::format("the running total is {}; expected {}", event.total->count, total_.count));
    sink_(event);
  }

 private:
  void refuse_overlap(const RecordedEvent& event) {
    const std::uint64_t end = event.block + static_cast<std::uint64_t>(event.bytes.count);
    const auto after = used_.lower_bound(event.block);
    const bool above = after != used_.end() && after->first < end;
    const bool below = after != used_.begin() && std::prev(after)->second > event.block;
    if (above || below) fail(path_, event.row, "the block overlaps one that is alive");
    used_.emplace_hint(after, event.block, end);
  }

  std::string path_;
  const RecordedSink& sink_;
  std::unordered_map<std::uint64_t, Bytes> live_;
  std::map<std::uint64_t, std::uint64_t> used_;  // begin to end
  bool any_ = false;
  std::int64_t time_ = 0;
  Bytes total_;
};

std::int64_t whole(std::string_view text, const std::string& path, std::int64_t row, int base = 10) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size() || text.empty())
    fail(path, row, fmt::format("'{}' is not a whole number", text));
  return value;
}

void read_hta(Unpacked& file, std::istream& in, Checker& checker) {
  std::string line;
  for (std::int64_t row = 2; file.at_row(row), std::getline(in, line); ++row) {
    if (line.ends_with('\r')) line.pop_back();
    std::array<std::string_view, 5> cells;
    std::string_view rest = line;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::size_t comma = rest.find(',');
      if ((comma == std::string_view::npos) != (i + 1 == cells.size()))
        fail(file.path(), row, "expected t_us,addr,bytes,total_allocated,total_reserved");
      cells[i] = rest.substr(0, comma);
      rest.remove_prefix(std::min(rest.size(), cells[i].size() + 1));
    }
    const std::int64_t bytes = whole(cells[2], file.path(), row);
    RecordedEvent event;
    event.row = row;
    event.time = whole(cells[0], file.path(), row);
    event.what = bytes < 0 ? RecordedEvent::What::free : RecordedEvent::What::alloc;
    event.block = static_cast<std::uint64_t>(whole(cells[1], file.path(), row, 16));
    event.bytes = Bytes{bytes < 0 ? -bytes : bytes};
    event.total = Bytes{whole(cells[3], file.path(), row)};
    event.reserved = Bytes{whole(cells[4], file.path(), row)};
    checker.take(event, true);
  }
}

/// [[t_ns, action, bytes, category], ...]: actions 1 there before, 2 created, 3 changed (two entries, the old category
/// out and the new one in), 4 destroyed.
class RawTimeline : public nlohmann::json_sax<nlohmann::json> {
 public:
  RawTimeline(Unpacked& file, Checker& checker) : file_(file), checker_(checker) {}

  bool null() override { return refuse(); }
  bool boolean(bool /*value*/) override { return refuse(); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return refuse(); }
  bool string(string_t& /*value*/) override { return refuse(); }
  bool binary(binary_t& /*value*/) override { return refuse(); }
  bool start_object(std::size_t /*size*/) override { return refuse(); }
  bool key(string_t& /*value*/) override { return refuse(); }
  bool end_object() override { return refuse(); }
  bool number_unsigned(number_unsigned_t value) override { return number(static_cast<std::int64_t>(value)); }
  bool number_integer(number_integer_t value) override { return number(value); }
  bool start_array(std::size_t /*size*/) override {
    if (++depth_ > 2) return refuse();
    if (depth_ == 2) file_.at_row(++row_);
    count_ = 0;
    return true;
  }
  bool end_array() override {
    if (depth_-- == 2) {
      if (count_ != 4) return refuse();
      take();
    }
    return true;
  }
  bool parse_error(std::size_t /*at*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    fail(file_.path(), row_, fmt::format("the JSON is damaged or cut off after this event: {}", error.what()));
  }

 private:
  [[noreturn]] bool refuse() const { fail(file_.path(), row_, "expected events [t_ns, action, bytes, category]"); }
  bool number(std::int64_t value) {
    if (depth_ != 2 || count_ == 4) refuse();
    values_[count_++] = value;
    return true;
  }
  void take() {
    const auto [time, action, bytes, category] = values_;
    if (action < 1 || action > 4) fail(file_.path(), row_, fmt::format("unknown action {}", action));
    if (category < 0 || category >= autograd_categories)
      fail(file_.path(), row_, fmt::format("unknown category {}", category));
    RecordedEvent event;
    event.row = row_;
    event.time = time;
    event.category = static_cast<int>(category);
    event.bytes = Bytes{bytes < 0 ? -bytes : bytes};
    if ((bytes < 0) != (action == 4) && action != 3) fail(file_.path(), row_, fmt::format("{} bytes", bytes));
    if (bytes < 0) {
      std::deque<std::uint64_t>& blocks = alive_[{event.bytes.count, category}];
      if (blocks.empty())
        fail(file_.path(), row_, fmt::format("no block of {} bytes and category {} is alive", -bytes, category));
      event.block = blocks.front();
      blocks.pop_front();
      if (action == 3) {
        moving_ = event;
        return;
      }
      event.what = RecordedEvent::What::free;
    } else if (action == 3) {
      if (!moving_ || moving_->bytes != event.bytes) fail(file_.path(), row_, "a change without its first half");
      event.what = RecordedEvent::What::category;
      event.category_before = moving_->category;
      event.block = moving_->block;
      moving_.reset();
      alive_[{bytes, category}].push_back(event.block);
    } else {
      event.block = next_++;
      alive_[{bytes, category}].push_back(event.block);
    }
    checker_.take(event, false);
  }

  Unpacked& file_;
  Checker& checker_;
  int depth_ = 0;
  std::size_t count_ = 0;
  std::array<std::int64_t, 4> values_{};
  std::int64_t row_ = 0;
  std::uint64_t next_ = 0;
  std::map<std::pair<std::int64_t, std::int64_t>, std::deque<std::uint64_t>> alive_;  // by size and category
  std::optional<RecordedEvent> moving_;
};

void read_timeline_rows(const std::string& path, Checker& checker) {
  TimelineReader reader(path);
  while (const auto row = reader.next()) {
    RecordedEvent event;
    event.row = reader.where().line;
    event.time = row->time.count;
    event.what = row->is_alloc ? RecordedEvent::What::alloc : RecordedEvent::What::free;
    event.block = row->id;
    event.bytes = row->bytes;
    event.total = row->live;
    event.reserved = row->reserved;
    checker.take(event, false);
  }
}

}  // namespace

void read_recording(const std::string& path, const RecordedSink& sink) {
  Unpacked file(path);
  std::istream in(&file);
  in.exceptions(std::ios::badbit);  // ours pass through
  Checker checker(path, sink);
  if (in.peek() == '[') {
    RawTimeline handler(file, checker);
    nlohmann::json::sax_parse(in, &handler);
    return;
  }
  std::string header;
  std::getline(in, header);
  if (header.ends_with('\r')) header.pop_back();
  if (header == "t_us,addr,bytes,total_allocated,total_reserved") return read_hta(file, in, checker);
  if (header.starts_with("seq,")) return read_timeline_rows(path, checker);
  fail(path, 1, "expected a timeline CSV, an event CSV (t_us,addr,bytes,...), or a raw memory timeline (JSON)");
}

}  // namespace tidemark
