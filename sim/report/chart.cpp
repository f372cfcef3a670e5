#include "tidemark/report/chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "tidemark/report/holding.hpp"
#include "tidemark/report/moment.hpp"

namespace tidemark {
namespace {

/// What one column of the chart covers.
struct Column {
  Bytes level;  // the highest
  Phase phase = Phase::initial;
  bool recompute = false;  // something is recomputed in it
  bool filled = false;
};

struct Sample {
  Nanos time;
  Bytes level;
  Phase phase = Phase::initial;
};

/// The events of one step of one rank, as samples of the level; the first is the level the step starts from.
class StepSamples {
 public:
  StepSamples(const Step& step, const Timeline& timeline) : step_(step), timeline_(timeline) {
    const MemoryEvent& peak = timeline.events[timeline.peak_event];
    rank_ = step.storages[peak.storage].rank;
    number_ = peak.op() == no_id ? 0 : step.ops[peak.op()].step;
    for_each([&](const Sample& sample, bool at_peak) {
      if (at_peak) peak_ = count_;
      if (count_++ == 0) start_ = sample.time;
      end_ = sample.time;
    });
  }

  /// Calls visit(sample, is it the peak) in time order.
  template <class Visit>
  void for_each(Visit visit) const {
    Sample last;
    bool started = false;
    for (std::size_t i = 0; i < timeline_.events.size(); ++i) {
      const MemoryEvent& event = timeline_.events[i];
      if (step_.storages[event.storage].rank != rank_) continue;
      const int number = event.op() == no_id ? -1 : step_.ops[event.op()].step;
      if (number > number_) break;
      const Phase phase = event.op() == no_id ? Phase::initial : step_.ops[event.op()].phase;
      if (number == number_) {
        if (!started) visit({event.time, last.level, phase}, peak_is_before(i));
        started = true;
        visit({event.time, event.live, phase}, i == timeline_.peak_event);
      }
      last = {event.time, event.live, phase};
    }
    if (!started) visit(last, true);
  }
  std::size_t count() const { return count_; }
  std::size_t peak() const { return peak_; }
  Nanos start() const { return start_; }
  Nanos length() const { return end_ - start_; }

 private:
  /// The step starts at its peak when that was reached before its first event.
  bool peak_is_before(std::size_t event) const { return timeline_.peak_event < event; }
  const Step& step_;
  const Timeline& timeline_;
  std::int16_t rank_ = 0;
  int number_ = 0;
  std::size_t count_ = 0, peak_ = 0;
  Nanos start_, end_;
};

/// The chart as numbers: one entry a column.
struct Tide {
  std::vector<Column> columns;
  std::size_t peak_column = 0;
};

void raise(Column& column, const Sample& sample) {
  column.recompute = column.recompute || sample.phase == Phase::recompute;
  if (column.filled && sample.level <= column.level) return;
  column.level = sample.level;
  column.phase = sample.phase;
  column.filled = true;
}

Tide by_sequence(const StepSamples& samples, std::size_t width) {
  Tide tide{std::vector<Column>(width)};
  const std::size_t n = samples.count();
  std::size_t j = 0;
  samples.for_each([&](const Sample& sample, bool) {
    const std::size_t first = j * width / n;
    const std::size_t end = std::max(first + 1, (j + 1) * width / n);
    for (std::size_t c = first; c < end; ++c) raise(tide.columns[c], sample);
    if (j == samples.peak()) tide.peak_column = (first + end - 1) / 2;
    ++j;
  });
  return tide;
}

Tide by_time(const StepSamples& samples, std::size_t width) {
  Tide tide{std::vector<Column>(width)};
  const auto column = [&](Nanos time) {
    const Int128 at = Int128{(time - samples.start()).count} * static_cast<Int128>(width) / samples.length().count;
    return std::min(static_cast<std::size_t>(at), width - 1);
  };
  Sample before;
  std::size_t j = 0;
  samples.for_each([&](const Sample& sample, bool) {
    // What stood before goes on up to here.
    if (j > 0)
      for (std::size_t c = column(before.time); c < column(sample.time); ++c) raise(tide.columns[c], before);
    raise(tide.columns[column(sample.time)], sample);
    if (j == samples.peak()) tide.peak_column = column(sample.time);
    before = sample;
    ++j;
  });
  return tide;
}

/// The phases a reader wants under the axis; recomputes are marked apart, copies belong to what they stand in.
Phase group(const Column& column, Phase before) {
  switch (column.phase) {
    case Phase::forward:
    case Phase::loss:
    case Phase::backward:
    case Phase::optimizer:
      return column.phase;
    case Phase::recompute:
      return Phase::backward;
    default:
      return before;
  }
}

Ink ink_of(const Column& column) {
  switch (column.phase) {
    case Phase::forward:
      return Ink::blue;
    case Phase::loss:
      return Ink::magenta;
    case Phase::recompute:
      return Ink::yellow;
    case Phase::backward:
      return Ink::green;
    case Phase::optimizer:
      return Ink::cyan;
    default:
      return Ink::plain;
  }
}

constexpr std::size_t margin = 9;  // of the y axis: "1023 MiB "

/// Draws a Tide line by line.
class Drawing {
 public:
  Drawing(const Tide& tide, const ChartOptions& options, const TerminalStyle& style, Bytes peak)
      : tide_(tide), style_(style), rows_(std::max(options.rows, 2)), top_(peak) {
    // A limit up to a quarter above the peak has room on the chart.
    if (options.limit && options.limit->count > 0 && options.limit->count / 5 * 4 <= peak.count) {
      limit_ = options.limit;
      top_ = std::max(top_, *limit_);
    }
    top_ = std::max(top_, Bytes{1});
  }

  std::string draw(const std::string& peak_text) {
    draw_peak(peak_text);
    for (int row = rows_ - 1; row >= 0; --row) draw_row(row);
    draw_axis();
    draw_phases();
    draw_recomputes();
    return std::move(out_);
  }

 private:
  std::string_view glyph(std::string_view fine, std::string_view plain) const { return style_.ascii ? plain : fine; }

  /// Height in eighths of a row; what is not empty is visible.
  std::int64_t height(Bytes level) const {
    const auto eighths = static_cast<std::int64_t>(Int128{level.count} * rows_ * 8 / top_.count);
    return level.count > 0 ? std::max<std::int64_t>(eighths, 1) : 0;
  }
  int row_of(Bytes level) const { return static_cast<int>((height(level) + 7) / 8) - 1; }

  void draw_peak(const std::string& text) {
    const std::string mark(glyph("▼", "v"));
    const std::size_t width = tide_.columns.size();
    const bool on_right = tide_.peak_column + 2 + columns(text) <= width || tide_.peak_column < width / 2;
    std::string line(margin + 1, ' ');
    if (on_right) {
      const std::string fitting = shortened(style_, text, width - tide_.peak_column - 2);
      line += std::string(tide_.peak_column, ' ') + mark + " " + painted(style_, Ink::bold, fitting);
    } else {
      const std::string fitting = shortened(style_, text, tide_.peak_column - 1);
      line +=
          std::string(tide_.peak_column - 1 - columns(fitting), ' ') + painted(style_, Ink::bold, fitting) + " " + mark;
    }
    out_ += line + "\n";
  }

  /// Ticks stand at multiples of a power of two, so that every label is short and exact.
  Bytes tick_step() const {
    std::int64_t step = 1;
    while (top_.count / step >= 5) step *= 2;
    return {step};
  }

  std::string tick_label(Bytes value) const {
    constexpr std::array<std::string_view, 6> units = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    std::int64_t count = value.count;
    std::size_t unit = 0;
    while (count >= 1024 && count % 1024 == 0 && unit + 1 < units.size()) {
      count /= 1024;
      ++unit;
    }
    // 1536 MiB is 1.5 GiB: multiples of a power of two need one decimal at most.
    if (count >= 1024 && unit + 1 < units.size())
      return fmt::format("{:g} {}", static_cast<double>(count) / 1024, units[unit + 1]);
    return fmt::format("{} {}", count, units[unit]);
  }

  void draw_row(int row) {
    std::string label;
    for (Bytes tick = tick_step(); tick <= top_; tick += tick_step())
      if (row_of(tick) == row) label = tick_label(tick);
    const bool is_limit = limit_ && row_of(*limit_) == row;
    if (is_limit) label = "limit";
    out_ += painted(style_, is_limit ? Ink::red : Ink::dim, right(label, margin - 1) + " ");
    out_ += painted(style_, Ink::dim, label.empty() ? glyph("│", "|") : glyph("┤", "+"));
    draw_cells(row, is_limit);
    while (out_.ends_with(' ')) out_.pop_back();
    out_ += "\n";
  }

  void draw_cells(int row, bool is_limit) {
    std::string run;
    Ink ink = Ink::plain;
    for (const Column& column : tide_.columns) {
      const std::int64_t eighths = std::clamp<std::int64_t>(height(column.level) - std::int64_t{8} * row, 0, 8);
      const bool line = eighths == 0 && is_limit;
      const Ink wanted = line ? Ink::red : eighths == 0 ? Ink::plain : ink_of(column);
      if (wanted != ink) out_ += painted(style_, ink, std::exchange(run, {}));
      ink = wanted;
      run += line ? glyph("┄", "-") : block(eighths);
    }
    out_ += painted(style_, ink, run);
  }

  std::string_view block(std::int64_t eighths) const {
    constexpr std::array<std::string_view, 9> fine = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    constexpr std::array<std::string_view, 9> plain = {" ", ".", ".", ":", ":", ":", "#", "#", "#"};
    return (style_.ascii ? plain : fine)[static_cast<std::size_t>(eighths)];
  }

  /// First columns of the runs of one phase group.
  std::vector<std::size_t> group_starts() const {
    std::vector<std::size_t> starts;
    Phase before = Phase::initial;
    for (std::size_t c = 0; c < tide_.columns.size(); ++c) {
      const Phase now = group(tide_.columns[c], before);
      if (c == 0 || now != before) starts.push_back(c);
      before = now;
    }
    return starts;
  }

  void draw_axis() {
    const std::vector<std::size_t> starts = group_starts();
    std::string line(glyph("└", "+"));
    for (std::size_t c = 0; c < tide_.columns.size(); ++c)
      line += c > 0 && std::ranges::binary_search(starts, c) ? glyph("┴", "+") : glyph("─", "-");
    out_ += painted(style_, Ink::dim, right("0", margin - 1) + " " + line) + "\n";
  }

  void draw_phases() {
    std::vector<std::size_t> starts = group_starts();
    std::string line(margin + 1, ' ');
    Phase before = Phase::initial;
    for (std::size_t i = 0; i < starts.size(); ++i) {
      const std::size_t end = i + 1 < starts.size() ? starts[i + 1] : tide_.columns.size();
      before = group(tide_.columns[starts[i]], before);
      line += left(phase_label(before, end - starts[i]), end - starts[i]);
    }
    while (line.ends_with(' ')) line.pop_back();
    if (!line.empty()) out_ += line + "\n";
  }

  /// The phase's name, a short form, or nothing: what the run's width can hold with a space after it.
  static std::string phase_label(Phase phase, std::size_t width) {
    if (phase == Phase::initial) return "";
    const std::string name(to_string(phase));
    if (name.size() < width) return name;
    const std::string brief = phase == Phase::forward ? "fwd" : phase == Phase::backward ? "bwd" : name.substr(0, 3);
    return brief.size() < width ? brief : "";
  }

  void draw_recomputes() {
    if (std::ranges::none_of(tide_.columns, &Column::recompute)) return;
    std::string line;
    for (const Column& column : tide_.columns) line += column.recompute ? glyph("▀", "^") : " ";
    while (line.ends_with(' ')) line.pop_back();
    out_ += painted(style_, Ink::yellow, "recompute " + line) + "\n";
  }

  const Tide& tide_;
  const TerminalStyle& style_;
  int rows_;
  Bytes top_;
  std::optional<Bytes> limit_;
  std::string out_;
};

std::string peak_label(const Step& step, const Timeline& timeline) {
  const OpId id = timeline.events[timeline.peak_event].op();
  if (id == no_id) return pretty(timeline.peak) + ", at the start";
  const StepOp& op = step.ops[id];
  const std::string layer(layer_name(step, op.layer));
  return pretty(timeline.peak) + ", " + phase_of_work(op.phase, step.names[op.name], layer);
}

}  // namespace

std::string tide_chart(const Step& step, const Timeline& timeline, const ChartOptions& options,
                       const TerminalStyle& style) {
  if (timeline.events.empty()) return "";
  const StepSamples samples(step, timeline);
  const std::size_t width = static_cast<std::size_t>(std::max(style.width, 40)) - margin - 1;
  const bool time = options.axis == ChartOptions::Axis::time && samples.length().count > 0;
  const Tide tide = time ? by_time(samples, width) : by_sequence(samples, width);
  return Drawing(tide, options, style, timeline.peak).draw(printable(peak_label(step, timeline)));
}

}  // namespace tidemark
