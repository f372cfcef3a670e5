/// What does each kind of recording hand out?
///
/// One reader a format; recording.cpp tells the formats apart and checks what they hand out.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tidemark/input/recording.hpp"

namespace tidemark::recordings {

/// Throws InputError at a row, or at the file as a whole (row 0).
[[noreturn]] void fail(const std::string& path, std::int64_t row, const std::string& message);

class Format {
 public:
  Format() = default;
  virtual ~Format() = default;
  Format(const Format&) = delete;
  Format& operator=(const Format&) = delete;
  virtual std::optional<RecordedEvent> next() = 0;
  /// Blocks are address ranges, which must not overlap.
  virtual bool has_addresses() const { return false; }
  /// Nothing tells which block a free is of, but its size.
  virtual bool pairs_by_size() const { return false; }
};
using FormatPtr = std::unique_ptr<Format>;

FormatPtr open_event_csv(const std::string& path);
FormatPtr open_timeline_csv(const std::string& path);
FormatPtr open_lifetimes_csv(const std::string& path);
FormatPtr open_raw_timeline(const std::string& path);
/// `device`: "cpu", "cuda:N", or "" for the only one.
FormatPtr open_trace(const std::string& path, const std::string& device);
FormatPtr open_snapshot(const std::string& path, const std::string& device);

}  // namespace tidemark::recordings
