/// Where do a million rows wait until it is known which of them are on the Pareto front?
///
/// In a temporary file without a name, so that memory does not grow with the study. In memory stays the front alone.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "tidemark/report/csv.hpp"
#include "tidemark/study/sweep_row.hpp"

namespace tidemark {

class SweepRows {
 public:
  /// Throws OutputError when there is no room for a temporary file.
  SweepRows();
  void add(const SweepRow& row);
  std::int64_t count() const { return count_; }
  std::int64_t failed() const { return failed_; }
  /// Every row, in the order added, as lines of CSV. `front`: `pareto` is 1 for the points that no other one beats
  /// (less peak and no more cost, or the other way round) and 0 for the rest; else it is empty.
  void write(bool front, const TextSink& sink) const;

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void put(const void* data, std::size_t bytes);

  std::unique_ptr<std::FILE, Close> file_;
  std::map<Bytes, Int128> front_;  // peak and cost: more of one, less of the other
  std::int64_t count_ = 0, failed_ = 0;
};

/// Adds the rows of an interrupted sweep's CSV, and gives the place of the grid after the last of them. Throws
/// InputError, naming file and line, where the file is not of this study: other columns, other points, or figures that
/// a simulation of its first, middle or last row does not give. A last line that is cut is left out.
std::int64_t take_over(const std::string& path, const Study& study, SweepRows& rows);

}  // namespace tidemark
