#include "tidemark/report/comparison.hpp"
#include "tidemark/report/json_writer.hpp"

namespace tidemark {
namespace {

void write_side(JsonWriter& out, std::string_view key, const SideFigures& side) {
  out.begin_object(key);
  out.member("name", side.name);
  out.member("measured", side.is_measured);
  out.member("events", side.events);
  out.member("peak_bytes", side.peak.bytes);
  out.member("peak_step", side.peak.step);
  out.member("peak_time_ns", side.peak.time);
  out.name("peak_op", side.peak.op);
  out.member("peak_phase", side.is_bare ? std::nullopt : std::optional(std::string(to_string(side.peak.phase))));
  out.member("peak_event", side.peak_event);
  out.begin_object("peak_by_category");
  for (std::size_t i = 0; i < category_names.size(); ++i)
    out.member(category_names[i], side.has_categories ? std::optional(side.at_peak[i]) : std::nullopt);
  out.member("unknown", unknown_at_peak(side));
  out.end_object();
  out.begin_object("phase_peaks");
  for (std::size_t i = 0; i < phase_names.size(); ++i) out.member(phase_names[i], side.phase_peaks[i]);
  out.end_object();
  out.begin_object("time_ns");
  for (std::size_t i = 1; i < phase_names.size(); ++i)
    out.member(phase_names[i], side.end.count > 0 ? std::optional(side.time[i]) : std::nullopt);
  out.member("all", side.end.count > 0 ? std::optional(side.end) : std::nullopt);
  out.end_object();
  out.end_object();
}

void write_row(JsonWriter& out, std::string_view key, const std::optional<TimelineRow>& row, const SourceLoc& where,
               const std::optional<std::size_t>& later) {
  if (!row) return out.null(key);
  out.begin_object(key);
  out.member("step", row->step);
  out.member("rank", row->rank);
  out.member("event", row->is_alloc ? "alloc" : "free");
  out.name("op", row->op);
  out.member("phase", row->phase ? std::optional(std::string(to_string(*row->phase))) : std::nullopt);
  out.name("tensor", row->tensor);
  out.member("category", row->category ? std::optional(std::string(to_string(*row->category))) : std::nullopt);
  out.member("bytes", row->bytes);
  out.member("live_bytes", row->live);
  out.member("line", where.line > 0 ? std::optional(where.line) : std::nullopt);
  out.member("events_later", later);
  out.end_object();
}

void write_difference(JsonWriter& out, const std::optional<FirstDifference>& difference) {
  if (!difference) return out.null("difference");
  out.begin_object("difference");
  out.member("what", difference->what);
  out.member("equal_events", difference->equal_events);
  write_row(out, "a", difference->a, difference->where_a, difference->a_later);
  write_row(out, "b", difference->b, difference->where_b, difference->b_later);
  out.end_object();
}

void write_explanation(JsonWriter& out, const std::optional<PeakExplanation>& explanation) {
  if (!explanation) return out.null("explanation");
  out.begin_object("explanation");
  out.member("of", explanation->of_b ? "b" : "a");
  out.member("sentence", explanation->sentence);
  out.begin_array("groups");
  for (const PeakGroup& group : explanation->groups) {
    out.begin_object();
    out.member("what", group.what);
    out.member("bytes", group.bytes);
    out.member("tensors", group.tensors);
    out.member("largest", group.largest);
    out.member("held_by", group.held_by);
    out.member("untouchable", group.untouchable);
    out.end_object();
  }
  out.end_array();
  out.end_object();
}

}  // namespace

std::string comparison_json(const Comparison& comparison) {
  JsonWriter out;
  out.begin_object();
  out.member("equal", !comparison.difference.has_value());
  write_side(out, "a", comparison.a);
  write_side(out, "b", comparison.b);
  write_difference(out, comparison.difference);
  write_explanation(out, comparison.explanation);
  out.end_object();
  return out.take();
}

}  // namespace tidemark
