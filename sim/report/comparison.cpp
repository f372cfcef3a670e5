#include "tidemark/report/comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "tidemark/report/holding.hpp"
#include "tidemark/report/text.hpp"

namespace tidemark {
namespace {

constexpr std::size_t label_width = 22;
constexpr std::size_t cell_width = 14;

std::string moment_text(const Moment& moment) {
  std::string text = moment.op.empty() ? "at the start" : phase_of_work(moment.phase, moment.op, "");
  if (moment.step > 0) text += fmt::format(", step {}", moment.step);
  return text;
}

std::string signed_bytes(Bytes bytes) {
  return (bytes.count < 0 ? "-" : bytes.count > 0 ? "+" : "") + pretty(Bytes{std::abs(bytes.count)});
}

class Page {
 public:
  Page(const Comparison& comparison, const TerminalStyle& style) : c_(comparison), style_(style) {}

  std::string write() {
    side("A", c_.a);
    side("B", c_.b);
    verdict();
    if (c_.explanation) text_ += "\n" + wrapped(style_, "Why  ", c_.explanation->sentence, Ink::plain, Ink::bold);
    levels();
    times();
    return std::move(text_);
  }

 private:
  std::string paint(Ink ink, std::string_view text) const { return painted(style_, ink, text); }

  void side(std::string_view label, const SideFigures& figures) {
    text_ += paint(Ink::bold, label) + "  " + figures.name + (figures.is_measured ? ", measured: " : ", simulated: ") +
             fmt::format("{}, peak {}{} {}\n", counted(figures.events, "event", "events"), pretty(figures.peak.bytes),
                         exactly(figures.peak.bytes),
                         figures.is_bare ? "at event " + grouped(static_cast<std::int64_t>(figures.peak_event))
                                         : "in " + moment_text(figures.peak));
  }

  void verdict() {
    text_ += "\n";
    if (!c_.difference) {
      text_ += paint(Ink::green, "Equal") +
               (!c_.is_bare          ? " in every event: order, op, tensor, category, bytes, running total\n"
                : c_.compares_blocks ? " in every event after the start: order, bytes, block that is freed\n"
                                     : " in every event after the start: order, bytes\n");
      return;
    }
    const FirstDifference& d = *c_.difference;
    text_ += paint(Ink::red, "Different") +
             fmt::format(" after {}: {}\n", counted(d.equal_events, "equal event", "equal events"), d.what);
    row("A", d.a, d.where_a);
    row("B", d.b, d.where_b);
    later("A", "B", d.a_later);
    later("B", "A", d.b_later);
  }

  void row(std::string_view label, const std::optional<TimelineRow>& row, const SourceLoc& where) {
    if (!row) return;
    const std::string place = where.file.empty() ? "" : "  " + to_string(where);
    text_ += fmt::format("  {}  {} ", label, row->is_alloc ? "allocates" : "frees");
    if (!row->tensor.empty()) text_ += row->tensor + ", ";
    text_ += grouped(row->bytes.count) + " B";
    if (row->category) text_ += ", " + std::string(to_string(*row->category));
    if (row->phase) text_ += ", " + moment_text({{}, row->step, {}, row->op, "", *row->phase});
    if (c_.is_bare && !row->is_alloc && row->id > 0)
      text_ += ", block of alloc " + grouped(static_cast<std::int64_t>(row->id));
    text_ += fmt::format("; {} B live{}\n", grouped(row->live.count), place);
  }

  void later(std::string_view whose, std::string_view other, const std::optional<std::size_t>& events) {
    if (events)
      text_ += fmt::format("  {}'s event comes {} later in {}\n", whose, counted(*events, "event", "events"), other);
  }

  void heading(std::string_view title, std::string_view change) {
    text_ += "\n" + paint(Ink::bold, left(title, label_width)) +
             paint(Ink::dim, right("A", cell_width) + right("B", cell_width) + right(change, cell_width)) + "\n";
  }

  void line(std::string_view label, const std::string& a, const std::string& b, const std::string& change) {
    text_ +=
        "  " + left(label, label_width - 2) + right(a, cell_width) + right(b, cell_width) + right(change, cell_width);
    while (text_.ends_with(' ')) text_.pop_back();
    text_ += "\n";
  }

  void bytes(std::string_view label, std::optional<Bytes> a, std::optional<Bytes> b) {
    const auto shown = [](const std::optional<Bytes>& value) { return value ? pretty(*value) : std::string("-"); };
    line(label, shown(a), shown(b), a && b ? signed_bytes(*b - *a) : "");
  }

  void levels() {
    heading("At the peak", "B - A");
    const auto shown = [](const SideFigures& side, Bytes value) {
      return side.has_categories ? std::optional(value) : std::nullopt;
    };
    for (std::size_t i = 0; i < category_names.size(); ++i)
      if (c_.a.at_peak[i].count > 0 || c_.b.at_peak[i].count > 0)
        bytes(category_names[i], shown(c_.a, c_.a.at_peak[i]), shown(c_.b, c_.b.at_peak[i]));
    if (const Bytes a = unknown_at_peak(c_.a), b = unknown_at_peak(c_.b); a.count > 0 || b.count > 0)
      bytes("unknown", a.count > 0 ? std::optional(a) : std::nullopt, b.count > 0 ? std::optional(b) : std::nullopt);
    bytes("all", c_.a.peak.bytes, c_.b.peak.bytes);
    heading("Highest by phase", "B - A");
    for (std::size_t i = 0; i < phase_names.size(); ++i)
      if (c_.a.phase_peaks[i] || c_.b.phase_peaks[i])
        bytes(i == 0 ? "start" : phase_names[i], c_.a.phase_peaks[i], c_.b.phase_peaks[i]);
  }

  /// Nothing is said of a side without times: a scenario whose device has no rates.
  void times() {
    if (c_.a.end.count == 0 && c_.b.end.count == 0) return;
    heading("Time", "B / A");
    const auto row = [&](std::string_view label, Nanos a, Nanos b) {
      if (a.count == 0 && b.count == 0) return;
      const auto shown = [](const SideFigures& side, Nanos time) {
        return time.count > 0 && side.end.count > 0 ? pretty(time) : std::string("-");
      };
      std::string ratio;
      if (a.count > 0 && b.count > 0)
        ratio = fmt::format("{:.2f}", static_cast<double>(b.count) / static_cast<double>(a.count));
      line(label, shown(c_.a, a), shown(c_.b, b), ratio);
    };
    for (std::size_t i = 0; i < phase_names.size(); ++i) row(phase_names[i], c_.a.time[i], c_.b.time[i]);
    row("all", c_.a.end, c_.b.end);
  }

  const Comparison& c_;
  const TerminalStyle& style_;
  std::string text_;
};

void clean(std::string& text) { text = printable(text); }

/// With names and sentences that a terminal can be given.
Comparison printable_comparison(Comparison comparison) {
  for (SideFigures* side : {&comparison.a, &comparison.b})
    for (std::string* text : {&side->name, &side->peak.op, &side->peak.layer}) clean(*text);
  if (comparison.difference) {
    FirstDifference& difference = *comparison.difference;
    for (std::string* text : {&difference.what, &difference.where_a.file, &difference.where_b.file}) clean(*text);
    for (std::optional<TimelineRow>* row : {&difference.a, &difference.b})
      if (*row)
        for (std::string* text : {&(*row)->op, &(*row)->tensor}) clean(*text);
  }
  if (comparison.explanation) {
    clean(comparison.explanation->sentence);
    for (PeakGroup& group : comparison.explanation->groups)
      for (std::string* text : {&group.what, &group.largest, &group.held_by}) clean(*text);
  }
  return comparison;
}

}  // namespace

Bytes unknown_at_peak(const SideFigures& side) {
  Bytes unknown = side.peak.bytes;
  for (const Bytes known : side.at_peak) unknown -= known;
  return unknown;
}

std::string comparison_text(const Comparison& comparison, const TerminalStyle& style) {
  const Comparison shown = printable_comparison(comparison);
  return Page(shown, style).write();
}

}  // namespace tidemark
