#include "tidemark/report/json.hpp"

#include "tidemark/report/json_writer.hpp"

namespace tidemark {
namespace {

void write_profile(JsonWriter& out, const Profile& profile) {
  out.begin_object("profile");
  out.member("preset", profile.preset);
  out.member("runtime", profile.runtime);
  out.member("kernels", profile.kernels);
  out.member("model_code", profile.model_code);
  out.member("loop", profile.loop);
  out.end_object();
}

void write_peak(JsonWriter& out, const StepFigures& figures) {
  out.member("peak_bytes", figures.peak.bytes);
  out.member("peak_step", figures.peak.step);
  out.member("peak_time_ns", figures.peak.time);
  out.name("peak_op", figures.peak.op);
  out.member("peak_phase", to_string(figures.peak.phase));
  out.begin_object("peak_by_category");
  for (std::size_t c = 0; c < category_names.size(); ++c) out.member(category_names[c], figures.at_peak[c]);
  out.end_object();
}

void write_tensors(JsonWriter& out, const Summary& summary) {
  out.begin_array("peak_tensors");
  for (const PeakTensor& tensor : summary.peak_tensors) {
    out.begin_object();
    out.member("tensor", tensor.tensor);
    out.name("op", tensor.op);
    out.name("layer", tensor.layer);
    out.member("category", to_string(tensor.category));
    out.member("bytes", tensor.bytes);
    out.member("birth_ns", tensor.birth);
    out.member("death_ns", tensor.death);
    out.member("drop_bytes", tensor.drop);
    out.member("held_by", tensor.held_by);
    out.end_object();
  }
  out.end_array();
  out.member("tensors_at_peak", summary.tensors_at_peak);
}

void write_levels(JsonWriter& out, const StepFigures& figures) {
  out.begin_object("phase_peaks");
  for (std::size_t p = 0; p < phase_names.size(); ++p) out.member(phase_names[p], figures.phase_peaks[p]);
  out.end_object();
  out.member("forward_end_bytes", figures.forward_end);
}

void write_flops(JsonWriter& out, std::string_view key, const FlopFigures& flops) {
  out.begin_object(key);
  out.member("forward", flops.forward);
  out.member("recompute", flops.recompute);
  out.member("backward", flops.backward);
  out.member("total", flops.total);
}

void write_cost(JsonWriter& out, const StepFigures& figures) {
  write_flops(out, "flops", figures.flops);
  out.member("model", figures.model_flops);
  out.end_object();
  write_flops(out, "other_flops", figures.other_flops);
  out.end_object();
  out.member("recompute_overhead", figures.recompute_overhead);
  out.begin_object("time_ns");
  out.member("step", figures.time.step);
  out.member("forward", figures.time.forward);
  out.member("recompute", figures.time.recompute);
  out.member("backward", figures.time.backward);
  out.member("optimizer", figures.time.optimizer);
  out.member("exposed_copy", figures.time.exposed);
  out.end_object();
  out.member("mfu", figures.mfu);
  out.member("hfu", figures.hfu);
}

void write_out_of_memory(JsonWriter& out, const OutOfMemoryFigures& failed) {
  out.begin_object("out_of_memory");
  out.member("step", failed.moment.step);
  out.member("time_ns", failed.moment.time);
  out.name("op", failed.moment.op);
  out.member("phase", to_string(failed.moment.phase));
  out.member("tensor", failed.tensor);
  out.member("requested_bytes", failed.requested);
  out.member("live_bytes", failed.moment.bytes);
  out.member("allocated_bytes", failed.allocator.allocated);
  out.member("active_bytes", failed.allocator.active);
  out.member("reserved_bytes", failed.allocator.reserved);
  out.member("inactive_split_bytes", failed.allocator.inactive_split);
  const auto figure = [&](Bytes Shortage::*which) {
    return failed.shortage ? std::optional((*failed.shortage).*which) : std::nullopt;
  };
  out.member("needed_bytes", figure(&Shortage::needed));
  out.member("device_free_bytes", figure(&Shortage::device_free));
  out.member("largest_free_bytes", figure(&Shortage::largest_free));
  out.member("would_have_fitted_bytes", figure(&Shortage::would_have_fitted));
  out.end_object();
}

void write_fit(JsonWriter& out, const Summary& summary) {
  out.member("allocated_peak_bytes", summary.allocated_peak);
  out.member("reserved_peak_bytes", summary.reserved_peak);
  out.member("limit_bytes", summary.limit);
  out.member("non_torch_bytes", summary.non_torch);
  out.member("fits", summary.fits);
  out.member("fits_by", summary.by);
  out.member("margin_bytes", summary.margin);
}

/// What an allocator model has to say, where one ran.
void write_allocator(JsonWriter& out, const Summary& summary) {
  if (summary.allocator.kind.empty()) return out.null("allocator");
  out.begin_object("allocator");
  write_findings(out, summary.allocator);
  if (summary.out_of_memory)
    write_out_of_memory(out, *summary.out_of_memory);
  else
    out.null("out_of_memory");
  out.end_object();
}

/// What the policy did to the peak.
void write_policy(JsonWriter& out, const Summary& summary) {
  out.name("policy", summary.policy);
  out.begin_object("recompute_at_peak");
  out.member("rebuilt_bytes", summary.recompute.rebuilt);
  out.member("to_be_dropped_bytes", summary.recompute.to_be_dropped);
  out.member("kept_bytes", summary.recompute.kept);
  out.member("layers_rebuilt", summary.recompute.layers_rebuilt);
  out.member("layers_recomputed", summary.recompute.layers_recomputed);
  out.end_object();
  out.member("no_checkpoint_peak_bytes", summary.no_checkpoint_peak);
  out.member("textbook_bytes", summary.textbook ? std::optional(summary.textbook->formula) : std::nullopt);
}

/// Of the last step. Absent where nothing is copied.
void write_offload(JsonWriter& out, const OffloadFigures& offload) {
  out.begin_object("offload");
  out.member("copies", offload.copies);
  out.member("moved_out_bytes", offload.moved_out);
  out.member("moved_in_bytes", offload.moved_in);
  out.member("host_peak_bytes", offload.host_peak);
  out.member("copying_ns", offload.copying);
  out.member("copying_back_ns", offload.copying_back);
  out.begin_object("at_peak");
  out.member("to_come_bytes", offload.at_peak.to_come);
  out.member("on_device_bytes", offload.at_peak.on_device);
  out.member("on_host_bytes", offload.at_peak.on_host);
  out.member("back_bytes", offload.at_peak.back);
  out.member("done_bytes", offload.at_peak.done);
  out.end_object();
  out.member("peak_without_bytes", offload.without ? std::optional(offload.without->peak) : std::nullopt);
  out.member("forward_end_without_bytes", offload.without ? offload.without->forward_end : std::nullopt);
  out.end_object();
}

/// Of the last step. Absent where nothing is exchanged.
void write_collectives(JsonWriter& out, const CollectiveFigures& collectives) {
  out.begin_object("collectives");
  out.member("count", collectives.count);
  out.member("received_bytes", collectives.received);
  out.member("busy_ns", collectives.busy);
  out.member("exposed_ns", collectives.exposed);
  out.end_object();
}

/// Of all stages, whichever the rest is about. Absent on one device.
void write_pipeline(JsonWriter& out, const PipelineFigures& pipeline) {
  out.member("worst_stage", pipeline.worst);
  out.member("bubble_rate", pipeline.bubble_rate);
  out.begin_array("stages");
  for (const StageFigures& stage : pipeline.stages) {
    out.begin_object();
    out.member("peak_bytes", stage.peak.bytes);
    out.member("peak_step", stage.peak.step);
    out.member("peak_time_ns", stage.peak.time);
    out.name("peak_op", stage.peak.op);
    out.name("peak_layer", stage.peak.layer);
    out.member("peak_phase", to_string(stage.peak.phase));
    out.member("in_flight", stage.in_flight);
    if (stage.without_copies) out.member("peak_without_copies_bytes", *stage.without_copies);
    out.member("span_ns", stage.span);
    out.member("busy_ns", stage.busy);
    out.member("exposed_transfer_ns", stage.exposed);
    out.end_object();
  }
  out.end_array();
}

void write_steps(JsonWriter& out, const Summary& summary) {
  out.begin_array("steps");
  for (const StepFigures& figures : summary.steps) {
    out.begin_object();
    write_peak(out, figures);
    write_levels(out, figures);
    out.member("steady_bytes", figures.end);
    write_cost(out, figures);
    out.end_object();
  }
  out.end_array();
}

}  // namespace

std::string summary_json(const Summary& summary) {
  JsonWriter out;
  out.begin_object();
  out.member("scenario", summary.scenario);
  write_profile(out, summary.profile);
  out.member("parameters", summary.parameters);
  write_peak(out, summary.peak());
  write_tensors(out, summary);
  write_levels(out, summary.last());
  out.member("steady_bytes", summary.last().end);
  write_fit(out, summary);
  write_allocator(out, summary);
  write_cost(out, summary.last());
  write_policy(out, summary);
  out.member("events", summary.events);
  out.member("ops", summary.ops);
  out.begin_array("warnings");
  for (const std::string& warning : summary.warnings) out.element(warning);
  out.end_array();
  write_steps(out, summary);
  if (summary.offload.copies > 0) write_offload(out, summary.offload);
  if (summary.collectives.count > 0) write_collectives(out, summary.collectives);
  if (summary.pipeline) write_pipeline(out, *summary.pipeline);
  out.end_object();
  return out.take();
}

}  // namespace tidemark
