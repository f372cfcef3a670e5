#include "tidemark/input/timeline_file.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>

namespace tidemark {
namespace {

constexpr std::size_t no_column = static_cast<std::size_t>(-1);
constexpr int end_of_file = -1;

enum Column : std::size_t {
  seq,
  time_ns,
  step,
  rank,
  stream,
  event,
  op,
  phase,
  tensor,
  category,
  bytes,
  live_bytes,
  id,
  allocated_bytes,
  reserved_bytes,
};
constexpr std::array<std::string_view, 17> column_names = {"seq",
                                                           "time_ns",
                                                           "step",
                                                           "rank",
                                                           "stream",
                                                           "event",
                                                           "op",
                                                           "phase",
                                                           "tensor",
                                                           "category",
                                                           "bytes",
                                                           "live_bytes",
                                                           "id",
                                                           "allocated_bytes",
                                                           "reserved_bytes",
                                                           "active_bytes",
                                                           "inactive_split_bytes"};
constexpr std::size_t required_columns = 13;

gzFile opened(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    throw InputError({path}, std::string(std::strerror(errno)) + "; expected a timeline (CSV)");
  if (S_ISDIR(info.st_mode)) throw InputError({path}, "this is a directory; expected a timeline (CSV)");
  const gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) throw InputError({path}, std::string(std::strerror(errno)) + "; expected a timeline (CSV)");
  return file;
}

/// A cell as a message may quote it.
std::string quoted(std::string_view text) {
  constexpr std::size_t longest = 40;
  std::string out = "'";
  for (const char c : text.substr(0, longest)) out += c >= 0 && c < ' ' ? '?' : c;
  return out + (text.size() > longest ? "...'" : "'");
}

/// "did you mean 'step'?", or all there are.
template <std::size_t N>
std::string nearest(std::string_view name, const std::array<std::string_view, N>& names) {
  const std::string near = nearest_name(name, {names.begin(), names.end()});
  return near.empty() ? fmt::format("expected one of: {}", fmt::join(names, ", "))
                      : fmt::format("did you mean '{}'?", near);
}

}  // namespace

TimelineReader::TimelineReader(const std::string& path)
    : path_(path), file_(opened(path), &gzclose), buffer_(1U << 16) {
  read_header();
}

std::optional<TimelineRow> TimelineReader::next() {
  if (!read_record()) return std::nullopt;
  if (used_ == 1 && fields_[0].empty()) fail("a blank line; expected a row or the end of the file");
  if (used_ != width_) fail(fmt::format("{} cells; expected {}, as in the header", used_, width_));
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t most_short = std::numeric_limits<std::int16_t>::max();
  if (const std::int64_t number = whole(Column::seq, 0, most); number != seq_)
    fail(fmt::format("'seq' must count up from 0: expected {}, not {}", seq_, number));
  ++seq_;
  TimelineRow row;
  row.time = Nanos{whole(Column::time_ns, 0, most)};
  row.step = static_cast<int>(whole(Column::step, 0, most_short));
  row.rank = static_cast<int>(whole(Column::rank, 0, most_short));
  row.stream = word<Stream>(Column::stream, stream_names);
  row.is_alloc = word<std::size_t>(Column::event, std::array<std::string_view, 2>{"free", "alloc"}) == 1;
  row.op = cell(Column::op);
  row.phase = word<Phase>(Column::phase, phase_names);
  row.tensor = cell(Column::tensor);
  row.category = word<Category>(Column::category, category_names);
  row.bytes = Bytes{whole(Column::bytes, 1, most)};
  row.live = Bytes{whole(Column::live_bytes, 0, most)};
  row.id = static_cast<std::uint64_t>(whole(Column::id, 0, most));
  row.allocated = optional_bytes(Column::allocated_bytes);
  row.reserved = optional_bytes(Column::reserved_bytes);
  return row;
}

int TimelineReader::get() {
  if (at_ == end_) {
    const int size = gzread(file_.get(), buffer_.data(), static_cast<unsigned>(buffer_.size()));
    int error = Z_OK;
    gzerror(file_.get(), &error);
    if (size < 0 || error < 0) fail("the compressed file is cut off or damaged after this row");
    end_ = static_cast<std::size_t>(size);
    at_ = 0;
    if (end_ == 0) return end_of_file;
  }
  return static_cast<unsigned char>(buffer_[at_++]);
}

/// Splits one row into fields_; false at the end of the file. Fields are reused, so that reading allocates little.
bool TimelineReader::read_record() {
  row_line_ = line_;
  used_ = 0;
  if (get() == end_of_file) return false;
  --at_;
  while (read_cell() == ',') {
  }
  return true;
}

/// The next cell; returns what ended it, a comma or a line's end.
int TimelineReader::read_cell() {
  if (used_ == fields_.size()) fields_.emplace_back();
  std::string& cell = fields_[used_++];
  cell.clear();
  int c = get();
  if (c == '"') {
    c = read_quoted(cell);
    if (c == '\r') c = get();
    if (c != ',' && c != '\n' && c != end_of_file) fail("text after the closing quote of " + quoted(cell));
  } else {
    for (; c != ',' && c != '\n' && c != end_of_file; c = get()) cell += static_cast<char>(c);
    if (c == '\n' && cell.ends_with('\r')) cell.pop_back();
  }
  if (c == end_of_file) fail("the file ends in the middle of a line: it has been cut off");
  if (c == '\n') ++line_;
  return c;
}

/// What stands between quotes, a doubled one for each quote within; returns what follows the closing one.
int TimelineReader::read_quoted(std::string& cell) {
  for (;;) {
    int c = get();
    if (c == '"') {
      c = get();
      if (c != '"') return c;
    } else if (c == end_of_file) {
      fail("the file ends within quotes: it has been cut off");
    } else if (c == '\n') {
      ++line_;
    }
    cell += static_cast<char>(c);
  }
}

void TimelineReader::read_header() {
  row_line_ = 1;
  if (!read_record()) throw InputError({path_}, "the file is empty; expected a timeline (CSV)");
  position_.assign(column_names.size(), no_column);
  width_ = used_;
  for (std::size_t i = 0; i < used_; ++i) {
    const auto found = std::ranges::find(column_names, fields_[i]);
    if (found == column_names.end())
      fail(fmt::format("unknown column {}; {}", quoted(fields_[i]), nearest(fields_[i], column_names)));
    std::size_t& position = position_[static_cast<std::size_t>(found - column_names.begin())];
    if (position != no_column) fail(fmt::format("column '{}' stands twice", fields_[i]));
    position = i;
  }
  for (std::size_t column = 0; column < required_columns; ++column)
    if (position_[column] == no_column) fail(fmt::format("column '{}' is missing", column_names[column]));
}

std::int64_t TimelineReader::whole(std::size_t column, std::int64_t least, std::int64_t most) const {
  const std::string& text = cell(column);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool leading_zero = text.size() > 1 && text[0] == '0';
  if (error != std::errc() || end != text.data() + text.size() || leading_zero || value < least || value > most)
    fail(fmt::format("'{}' must be a whole number from {} to {}, not {}", column_names[column], least, most,
                     quoted(text)));
  return value;
}

std::optional<Bytes> TimelineReader::optional_bytes(std::size_t column) const {
  if (position_[column] == no_column || cell(column).empty()) return std::nullopt;
  return Bytes{whole(column, 0, std::numeric_limits<std::int64_t>::max())};
}

template <class Enum, std::size_t N>
Enum TimelineReader::word(std::size_t column, const std::array<std::string_view, N>& names) const {
  const auto found = std::ranges::find(names, cell(column));
  if (found == names.end())
    fail(fmt::format("unknown {} {}; {}", column_names[column], quoted(cell(column)), nearest(cell(column), names)));
  return static_cast<Enum>(found - names.begin());
}

void TimelineReader::fail(const std::string& message) const { throw InputError({path_, row_line_, 0}, message); }

std::vector<TimelineRow> read_timeline(const std::string& path) {
  std::vector<TimelineRow> rows;
  TimelineReader reader(path);
  while (std::optional<TimelineRow> row = reader.next()) rows.push_back(*std::move(row));
  return rows;
}

}  // namespace tidemark
