#include "tidemark/study/sweep_rows.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <string_view>

#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

/// A row as it waits: this, then head and error.
struct Waiting {
  std::size_t head = 0, error = 0;  // their lengths
  Bytes peak;
  Int128 cost = 0;
};

constexpr std::size_t chunk = 1U << 16U;  // bytes that go to a file at a time

[[noreturn]] void no_room() {
  throw OutputError("cannot keep rows in a temporary file: " + std::string(std::strerror(errno)));
}

void get(std::FILE* file, void* data, std::size_t bytes) {
  if (bytes > 0 && std::fread(data, 1, bytes, file) != bytes) no_room();
}

}  // namespace

SweepRows::SweepRows() : file_(std::tmpfile()) {
  if (!file_ || std::setvbuf(file_.get(), nullptr, _IOFBF, chunk) != 0) no_room();
}

void SweepRows::put(const void* data, std::size_t bytes) {
  if (bytes > 0 && std::fwrite(data, 1, bytes, file_.get()) != bytes) no_room();
}

void SweepRows::add(const SweepRow& row) {
  const Waiting waiting{row.head.size(), row.error.size(), row.peak, row.cost};
  put(&waiting, sizeof waiting);
  put(row.head.data(), row.head.size());
  put(row.error.data(), row.error.size());
  ++count_;
  if (!row.error.empty()) {
    ++failed_;
    return;
  }
  const auto above = front_.upper_bound(row.peak);  // the first with a higher peak
  if (above != front_.begin() && std::prev(above)->second <= row.cost) return;
  auto beaten = front_.lower_bound(row.peak);
  while (beaten != front_.end() && beaten->second >= row.cost) beaten = front_.erase(beaten);
  front_.emplace(row.peak, row.cost);
}

void SweepRows::write(bool front, const TextSink& sink) const {
  if (std::fflush(file_.get()) != 0 || std::fseek(file_.get(), 0, SEEK_SET) != 0) no_room();
  std::string lines, error;
  for (std::int64_t i = 0; i < count_; ++i) {
    Waiting row;
    get(file_.get(), &row, sizeof row);
    const std::size_t begin = lines.size();
    lines.resize(begin + row.head);
    error.resize(row.error);
    get(file_.get(), lines.data() + begin, row.head);
    get(file_.get(), error.data(), row.error);
    const auto found = front_.find(row.peak);
    const bool best = found != front_.end() && found->second == row.cost;
    lines += !front || !error.empty() ? "," : best ? ",1" : ",0";
    lines += "," + csv_field(error) + "\n";
    if (lines.size() < chunk && i + 1 < count_) continue;
    sink(lines);
    lines.clear();
  }
  if (std::fseek(file_.get(), 0, SEEK_END) != 0) no_room();
}

namespace {

/// The last two fields of a line, `pareto` and `error`, and what stands before them.
struct Line {
  std::string head, error;
  std::vector<std::string> fields;
};

/// Nothing where the line has other fields than the study's rows.
std::optional<Line> split(const std::string& line, std::size_t columns) {
  Line out;
  out.fields = csv_fields(line);
  if (out.fields.size() != columns) return std::nullopt;
  out.error = out.fields.back();
  const std::size_t error_text = csv_field(out.error).size();
  const std::size_t pareto = out.fields[columns - 2].size();
  if (line.size() < error_text + pareto + 2) return std::nullopt;
  out.head = line.substr(0, line.size() - error_text - pareto - 2);
  return out;
}

Int128 whole(std::string_view text) {
  Int128 value = 0;
  for (const char c : text) value = 10 * value + (c - '0');
  return value;
}

/// Where the figures stand that the front is made of.
struct Places {
  explicit Places(const Study& study)
      : peak(place_of_column(study, "peak_bytes")),
        time(place_of_column(study, "time_step_ns")),
        flops(place_of_column(study, "flops_total")) {}
  std::size_t peak, time, flops;
};

SweepRow row_of(const Places& places, const Line& line) {
  SweepRow row{line.head, line.error, {}, 0};
  if (!row.error.empty()) return row;
  const auto figure = [&](std::size_t place) {
    const std::string& text = line.fields[place];
    return text.find_first_not_of("0123456789") == std::string::npos ? whole(text) : Int128{0};
  };
  row.peak = Bytes{static_cast<std::int64_t>(figure(places.peak))};
  row.cost = figure(places.time);
  if (row.cost == 0) row.cost = figure(places.flops);
  return row;
}

/// The places of the grid that rows stand for, one after the other.
class Walk {
 public:
  explicit Walk(const Study& study) : study_(study), size_(*grid_size(study)) {}
  std::optional<std::int64_t> next() {
    while (at_ < size_ && !is_wanted(study_, at_)) ++at_;
    return at_ < size_ ? std::optional(at_++) : std::nullopt;
  }
  std::int64_t place() const { return at_; }

 private:
  const Study& study_;
  std::int64_t size_;
  std::int64_t at_ = 0;
};

/// A whole line with its end; false at the end of the file, or where only a part of a line is left.
bool next_line(std::ifstream& in, std::string& line) { return std::getline(in, line) && !in.eof(); }

std::int64_t count_lines(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string line;
  std::int64_t lines = 0;
  while (next_line(in, line)) ++lines;
  return lines;
}

}  // namespace

std::int64_t take_over(const std::string& path, const Study& study, SweepRows& rows) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw InputError({path}, "cannot be read to go on from: " + std::string(std::strerror(errno)));
  const std::string header = sweep_header(study);
  const std::size_t columns = csv_fields(header).size();
  std::string line;
  if (!next_line(in, line) || line + "\n" != header)
    throw InputError({path, 1}, "is the CSV of another study: its columns are not those of " + study.file);
  const std::int64_t last = count_lines(path) - 1;  // line 0 is the header
  const Places places(study);
  Walk walk(study);
  for (std::int64_t number = 1; next_line(in, line); ++number) {
    const SourceLoc where{path, static_cast<int>(number + 1)};
    const std::optional<std::int64_t> index = walk.next();
    const std::optional<Line> parts = split(line, columns);
    if (!index || !parts || !parts->head.starts_with(row_start(study, *index)))
      throw InputError(where, "is the CSV of another study: expected " +
                                  (index ? "the row of point " + std::to_string(*index) : "no more rows"));
    const SweepRow row = row_of(places, *parts);
    if (number == 1 || number == last || number == (last + 1) / 2) {
      const SweepRow expected = simulated_row(study, *index);
      std::string differs = difference(study, row.head, expected.head);
      if (differs.empty() && row.error != expected.error) differs = "error '" + row.error + "'";
      if (!differs.empty()) throw InputError(where, "is the CSV of another study: " + differs);
    }
    rows.add(row);
  }
  return walk.place();
}

}  // namespace tidemark
