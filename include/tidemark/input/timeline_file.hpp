/// What does a timeline CSV hold, row by row?
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tidemark/base/errors.hpp"
#include "tidemark/engine/referee.hpp"

struct gzFile_s;  // zlib.h

namespace tidemark {

/// Reads a timeline CSV (docs/output.md), plain or gzipped, row by row, so that the file need not fit in memory.
/// Columns may stand in any order; the allocator's may be missing. Every fault is an InputError that names the line: a
/// column that is missing, unknown or repeated, a cell that is not what its column holds, a row too long or too short,
/// a blank line, a `seq` that does not count up from 0, a file that ends in the middle of a line.
///
/// Its own parser: quoted names may hold line breaks, and a last line that was cut off must not pass for a whole one.
class TimelineReader {
 public:
  explicit TimelineReader(const std::string& path);
  /// The next row; nothing at the end of the file.
  std::optional<TimelineRow> next();
  /// Where the row handed out last begins.
  SourceLoc where() const { return {path_, row_line_, 0}; }

 private:
  int get();
  bool read_record();
  int read_cell();
  int read_quoted(std::string& cell);
  void read_header();
  const std::string& cell(std::size_t column) const { return fields_[position_[column]]; }
  std::int64_t whole(std::size_t column, std::int64_t least, std::int64_t most) const;
  std::optional<Bytes> optional_bytes(std::size_t column) const;
  template <class Enum, std::size_t N>
  Enum word(std::size_t column, const std::array<std::string_view, N>& names) const;
  [[noreturn]] void fail(const std::string& message) const;

  std::string path_;
  std::unique_ptr<gzFile_s, int (*)(gzFile_s*)> file_;
  std::vector<char> buffer_;
  std::size_t at_ = 0, end_ = 0;
  int line_ = 1, row_line_ = 0;
  std::vector<std::string> fields_;
  std::size_t used_ = 0;               // of fields_, in this record
  std::vector<std::size_t> position_;  // by column: where in a record; no_column when the file lacks it
  std::size_t width_ = 0;
  std::int64_t seq_ = 0;
};

/// The whole file.
std::vector<TimelineRow> read_timeline(const std::string& path);

}  // namespace tidemark
