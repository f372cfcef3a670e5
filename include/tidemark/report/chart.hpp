/// What does the tide of the step with the highest peak look like?
#pragma once

#include <optional>
#include <string>

#include "tidemark/engine/timeline.hpp"
#include "tidemark/report/terminal.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

struct ChartOptions {
  enum class Axis : std::uint8_t { sequence, time } axis = Axis::sequence;  // time falls back where none passes
  int rows = 10;
  std::optional<Bytes> limit;  // drawn as a line where it is near the peak
};

/// Live bytes over the step that reaches the peak, first event to last. A column shows the highest level in it, so
/// no peak is ever hidden; the peak's own column is marked. Phases stand under the axis. Lines end in "\n" and keep
/// within the style's width (at least 40); "" for an empty timeline.
std::string tide_chart(const Step& step, const Timeline& timeline, const ChartOptions& options,
                       const TerminalStyle& style);

}  // namespace tidemark
