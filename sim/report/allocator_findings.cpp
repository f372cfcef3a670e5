#include "tidemark/report/allocator_findings.hpp"

namespace tidemark {
namespace {

void write_steady(JsonWriter& out, const std::optional<SteadyState>& steady) {
  if (!steady) return out.null("steady_state");
  out.begin_object("steady_state");
  out.member("first_step", steady->first);
  out.member("steps_replayed", steady->replayed);
  out.member("reserved_peak_bytes", steady->reserved);
  out.end_object();
}

void write_fragmentation(JsonWriter& out, const std::optional<Fragmentation>& f) {
  if (!f) return out.null("fragmentation");
  out.begin_object("fragmentation");
  out.member("step", f->step);
  out.name("op", f->op);
  out.member("phase", f->phase);
  out.member("reserved_bytes", f->reserved);
  out.member("live_bytes", f->live);
  out.member("rounding_bytes", f->rounding);
  out.member("waiting_bytes", f->waiting);
  out.member("free_bytes", f->free);
  out.member("unused_bytes", f->unused);
  out.member("holes", f->holes);
  out.member("largest_free_bytes", f->largest_free);
  out.begin_array("segments");
  for (const SplitSegment& segment : f->segments) {
    out.begin_object();
    out.member("bytes", segment.bytes);
    out.member("free_bytes", segment.free);
    out.member("largest_free_bytes", segment.largest_free);
    out.member("holes", segment.holes);
    out.begin_array("between");
    for (const std::string& tensor : segment.between) out.element(tensor);
    out.end_array();
    out.end_object();
  }
  out.end_array();
  out.end_object();
}

void write_arena(JsonWriter& out, const std::optional<ArenaFigures>& arena) {
  if (!arena) return out.null("arena");
  out.begin_object("arena");
  out.member("height_bytes", arena->height);
  out.member("lower_bound_bytes", arena->lower_bound);
  out.member("live_peak_bytes", arena->live_peak);
  out.member("gap_bytes", arena->height - arena->live_peak);
  out.member("optimal", arena->height == arena->lower_bound);
  out.member("storages", arena->storages);
  out.end_object();
}

}  // namespace

void write_findings(JsonWriter& out, const AllocatorFindings& findings) {
  out.member("kind", findings.kind);
  out.member("retries", findings.retries);
  write_steady(out, findings.steady);
  write_fragmentation(out, findings.fragmentation);
  write_arena(out, findings.arena);
}

}  // namespace tidemark
