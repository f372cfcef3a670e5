#include "tidemark/report/text.hpp"
#include "tidemark/report/fragmentation_text.hpp"
#include "tidemark/report/holding.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <utility>
#include <vector>

namespace tidemark {
namespace {

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

double ratio(Bytes part, Bytes whole) {
  return whole.count == 0 ? 0 : static_cast<double>(part.count) / static_cast<double>(whole.count);
}

Bytes magnitude(Bytes bytes) { return {std::abs(bytes.count)}; }

std::string moment_text(const Moment& moment) {
  return moment.op.empty() ? "at the start" : phase_of_work(moment.phase, moment.op, moment.layer);
}

std::string signed_bytes(Bytes bytes) { return (bytes.count < 0 ? "-" : "+") + pretty(magnitude(bytes)); }

class Page {
 public:
  Page(const Summary& summary, const TerminalStyle& style)
      : s_(summary), style_(style), width_(static_cast<std::size_t>(std::max(style.width, 60))) {}

  std::string write(const std::string& chart) {
    title();
    headline();
    if (!chart.empty()) text_ += "\n" + chart;
    make_up();
    tensors();
    stages();
    if (s_.allocator.fragmentation) text_ += fragmentation_text(*s_.allocator.fragmentation, style_);
    cost();
    textbook();
    steps();
    warnings();
    return std::move(text_);
  }

 private:
  static constexpr std::size_t label_width = 12;

  std::string paint(Ink ink, std::string_view text) const { return painted(style_, ink, text); }
  std::string_view dot() const { return style_.ascii ? " | " : " · "; }
  void heading(std::string_view text) { text_ += "\n" + paint(Ink::bold, text) + "\n"; }
  void labelled(std::string_view label, std::string_view text) {
    text_ += wrapped(style_, left(label, label_width), text, Ink::plain, Ink::bold);
  }

  void title() {
    text_ += paint(Ink::bold, s_.scenario.empty() ? "tidemark" : s_.scenario) + "\n";
    const Profile& p = s_.profile;
    text_ += wrapped(style_, "",
                     fmt::format("profile {}: runtime {}, kernels {}, code {}, loop {}", p.preset, p.runtime, p.kernels,
                                 p.model_code, p.loop),
                     Ink::dim);
    std::string size;
    if (s_.parameters) size = grouped(*s_.parameters) + " parameters" + std::string(dot());
    size += counted(s_.steps.size(), "step", "steps") + std::string(dot()) + counted(s_.ops, "op", "ops") +
            std::string(dot()) + counted(s_.events, "allocation or free", "allocations and frees");
    text_ += wrapped(style_, "", size, Ink::dim) + "\n";
  }

  void headline() {
    const Moment& peak = s_.peak().peak;
    std::string when = moment_text(peak);
    if (s_.steps.size() > 1) when += fmt::format(", step {}", peak.step);
    if (peak.time.count > 0) when += ", at " + pretty(peak.time);
    const std::string bytes = pretty(peak.bytes) + exactly(peak.bytes);
    const bool one_line = label_width + columns(bytes) + 2 + columns(when) <= width_;
    text_ += paint(Ink::bold, left("Peak", label_width) + bytes) +
             (one_line ? "  " : "\n" + std::string(label_width, ' ')) + shortened(style_, when, width_ - label_width) +
             "\n";
    if (s_.reserved_peak)
      labelled("Reserved", pretty(*s_.reserved_peak) + exactly(*s_.reserved_peak) + "  at most, for " +
                               pretty(*s_.allocated_peak) + " allocated");
    steady();
    arena();
    fit();
    policy(peak.bytes);
    offload();
    collectives();
  }

  void steady() {
    if (!s_.allocator.steady) return;
    const SteadyState& steady = *s_.allocator.steady;
    labelled("Steady", steady.first
                           ? fmt::format("every step from step {} on is like the one before, with at most {} "
                                         "reserved ({} steps replayed)",
                                         *steady.first, pretty(steady.reserved), steady.replayed)
                           : fmt::format("not within {} steps: the reserved bytes go on changing", steady.replayed));
  }

  void arena() {
    if (!s_.allocator.arena) return;
    const ArenaFigures& a = *s_.allocator.arena;
    const std::string gap =
        a.height == a.live_peak ? "as high as the live peak" : pretty(a.height - a.live_peak) + " above the live peak";
    const std::string bound = a.height == a.lower_bound ? "none is lower" : "none is below " + pretty(a.lower_bound);
    labelled("Arena", fmt::format("a fixed address for each of {} storages: {}; {}", grouped(a.storages), gap, bound));
  }

  void policy(Bytes peak) {
    if (!s_.policy.empty()) labelled("Policy", s_.policy);
    if (!s_.no_checkpoint_peak) return;
    const Bytes none = *s_.no_checkpoint_peak;
    const Bytes gain = none - peak;
    labelled(s_.policy.empty() ? "Policy" : "",
             gain.count == 0 ? fmt::format("as high as without checkpointing, {}", pretty(none))
                             : fmt::format("{} ({}) {} than without checkpointing, {}", pretty(magnitude(gain)),
                                           percent(std::abs(ratio(gain, none))), gain.count < 0 ? "higher" : "lower",
                                           pretty(none)));
  }

  void fit() {
    if (!s_.fits) return;
    const std::string answer = *s_.fits ? paint(Ink::green, "yes") : paint(Ink::red, "no");
    text_ += paint(Ink::bold, left("Fits", label_width)) + answer;
    if (s_.out_of_memory) {
      text_ += ", the allocator runs out of memory\n";
      labelled("", printable(out_of_memory_text(*s_.out_of_memory)));
      return;
    }
    const std::string by =
        fmt::format("({} bytes{})", *s_.by, s_.non_torch.count > 0 ? "; " + pretty(s_.non_torch) + " are outside" : "");
    const std::string line =
        fmt::format(", {} {} the {} of {}", pretty(magnitude(*s_.margin)), *s_.fits ? "below" : "above",
                    pretty(*s_.limit), shortened(style_, s_.limit_name, 20));
    const bool one_line = label_width + 4 + columns(line) + columns(by) <= width_;
    text_ += line + (one_line ? " " : "\n" + std::string(label_width, ' ')) + by + "\n";
  }

  std::string bar(double share, std::size_t room) const {
    const auto eighths = static_cast<std::size_t>(std::lround(share * static_cast<double>(room) * 8));
    if (style_.ascii) return std::string(eighths / 8, '#');
    constexpr std::array<std::string_view, 8> ends = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    std::string out;
    for (std::size_t i = 0; i < eighths / 8; ++i) out += "█";
    return out + std::string(ends[eighths % 8]);
  }

  /// Two lists side by side: what the peak is made of, and how high each phase rises.
  void make_up() {
    const StepFigures& at = s_.peak();
    std::vector<std::string> categories, phases;
    for (std::size_t c = 0; c < category_names.size(); ++c) {
      if (at.at_peak[c].count == 0) continue;
      const double share = ratio(at.at_peak[c], at.peak.bytes);
      categories.push_back(left(category_names[c], 17) + right(pretty(at.at_peak[c]), 9) + right(percent(share), 9) +
                           "  " + left(bar(share, 10), 10));
    }
    for (std::size_t p = 0; p < phase_names.size(); ++p)
      if (at.phase_peaks[p])
        phases.push_back(left(p == 0 ? "start" : phase_names[p], 15) + right(pretty(*at.phase_peaks[p]), 9));
    std::string_view first = "At the peak, by category";
    const std::string second = s_.steps.size() > 1 ? "Highest level by phase, last step" : "Highest level by phase";
    if (width_ < 53 + columns(second)) {
      list(first, categories);
      list(second, phases);
      return;
    }
    text_ += "\n" + paint(Ink::bold, left(first, 53)) + paint(Ink::bold, second) + "\n";
    for (std::size_t i = 0; i < std::max(categories.size(), phases.size()); ++i) {
      std::string line = "  " + left(i < categories.size() ? categories[i] : "", 51);
      if (i < phases.size()) line += "  " + phases[i];
      while (line.ends_with(' ')) line.pop_back();
      text_ += line + "\n";
    }
  }

  void list(std::string_view title, const std::vector<std::string>& lines) {
    heading(title);
    for (std::string line : lines) {
      while (line.ends_with(' ')) line.pop_back();
      text_ += "  " + line + "\n";
    }
  }

  /// "backward of layers.3.mlp.gelu"; where room is short, without the layer when that is the tensor's own.
  static std::string holder(const PeakTensor& tensor, bool brief) {
    std::string text = tensor.held_by;
    if (text.starts_with("saved for ")) text.erase(0, 10);
    const std::string layer = " " + tensor.layer + ".";
    if (const std::size_t at = text.find(layer); brief && !tensor.layer.empty() && at != std::string::npos)
      text.erase(at + 1, layer.size() - 1);
    return text;
  }

  void tensors() {
    if (s_.peak_tensors.empty()) return;
    heading(s_.peak_tensors.size() == s_.tensors_at_peak
                ? fmt::format("The {} at the peak", counted(s_.tensors_at_peak, "tensor", "tensors"))
                : fmt::format("The {} largest of {} at the peak", s_.peak_tensors.size(),
                              counted(s_.tensors_at_peak, "tensor", "tensors")));
    const std::size_t room = width_ - 26;  // both byte columns and the gaps
    std::size_t name = 6, full = 0, held = 0;
    for (const PeakTensor& tensor : s_.peak_tensors) {
      name = std::max(name, columns(tensor.tensor));
      full = std::max(full, columns(holder(tensor, false)));
      held = std::max(held, columns(holder(tensor, true)));
    }
    const bool brief = name + full > room;
    name = std::min(name, std::max(room * 2 / 5, room - std::min(room, brief ? held : full)));
    text_ += paint(Ink::dim,
                   "  " + right("bytes", 9) + "  " + right("drop", 9) + "  " + left("tensor", name) + "  held by") +
             "\n";
    for (const PeakTensor& tensor : s_.peak_tensors)
      text_ += "  " + right(pretty(tensor.bytes), 9) + "  " + right(pretty(tensor.drop), 9) + "  " +
               left(shortened(style_, tensor.tensor, name), name) + "  " +
               shortened(style_, holder(tensor, brief), room - name) + "\n";
  }

  /// What a reader of an offload asks: how much of the host, does it hide, does it lower the peak, and why not?
  void offload() {
    const OffloadFigures& o = s_.offload;
    if (o.copies == 0) return;
    TimeFigures time = s_.last().time;
    if (s_.pipeline) time.exposed = o.waits;
    labelled("Offload", fmt::format("{} to the host and {} back, at most {} there; {} of copies, for which computation "
                                    "waits {}",
                                    pretty(o.moved_out), pretty(o.moved_in), pretty(o.host_peak), pretty(o.copying),
                                    time.exposed.count == 0 ? "nothing: they hide" : pretty(time.exposed)));
    if (time.exposed.count > 0) labelled("", offload_waits(o, time));
    if (o.without) labelled("", offload_gain(o));
  }

  static std::string offload_waits(const OffloadFigures& o, const TimeFigures& time) {
    const Nanos out = o.copying - o.copying_back, backward = time.recompute + time.backward;
    const std::string back =
        fmt::format("copies back take {}, what runs beside them {}", pretty(o.copying_back), pretty(backward));
    if (o.copying_back > backward) return "the link is too slow to hide them: " + back;
    if (out > time.forward)
      return fmt::format("the link is too slow to hide them: copies out take {}, forward {}", pretty(out),
                         pretty(time.forward));
    return back + ": they are asked for late or wait for copies out that still run";
  }

  std::string offload_gain(const OffloadFigures& o) const {
    const Moment& peak = s_.peak().peak;
    const auto change = [](Bytes without, Bytes with) {
      const Bytes gain = without - with;
      return gain.count == 0 ? std::string("stays")
                             : fmt::format("{} by {}", gain.count > 0 ? "falls" : "rises", pretty(magnitude(gain)));
    };
    std::string out;
    const std::optional<Bytes> level = s_.last().forward_end;
    if (o.without->forward_end && level)
      out = fmt::format("the level after forward {}, ", change(*o.without->forward_end, *level));
    out += fmt::format("the peak {}: in {} ", change(o.without->peak, peak.bytes), moment_text(peak));
    std::string parts;
    const auto part = [&](Bytes bytes, std::string_view where) {
      if (bytes.count == 0) return;
      parts += (parts.empty() ? "" : ", ") + pretty(bytes) + " of it " + std::string(where);
    };
    part(o.at_peak.on_host, "is on the host");
    part(o.at_peak.on_device, "has not left the device");
    part(o.at_peak.back, "is back");
    part(o.at_peak.done, "has been used and is gone");
    part(o.at_peak.to_come, "is not made yet");
    return out + parts;
  }

  void collectives() {
    const CollectiveFigures& c = s_.collectives;
    if (c.count == 0) return;
    labelled("Exchange",
             fmt::format("{} collective{} a step, {} received", c.count, c.count == 1 ? "" : "s", pretty(c.received)) +
                 (c.busy.count == 0 ? ""
                                    : fmt::format("; {} of them, {} exposed", pretty(c.busy),
                                                  c.exposed.count == 0 ? "nothing" : pretty(c.exposed))));
  }

  void stages() {
    if (!s_.pipeline) return;
    const PipelineFigures& pipeline = *s_.pipeline;
    heading("Stage by stage");
    if (pipeline.bubble_rate)
      text_ += fmt::format("  bubble rate {:.4f}: the part of the longest stage's time that it waits\n",
                           *pipeline.bubble_rate);
    const bool copies = pipeline.stages.front().without_copies.has_value();
    text_ += paint(Ink::dim, "  " + right("stage", 5) + right("peak", 12) + right("in flight", 11) + right("waits", 9) +
                                 right("transfers", 11) + (copies ? right("uncopied", 12) : "") + "  peak in") +
             "\n";
    for (std::size_t r = 0; r < pipeline.stages.size(); ++r) {
      const StageFigures& stage = pipeline.stages[r];
      const auto share = [&](Nanos part) {
        return stage.span.count == 0 ? 0 : static_cast<double>(part.count) / static_cast<double>(stage.span.count);
      };
      const std::string when = r == pipeline.worst ? moment_text(stage.peak) + " (the worst)" : moment_text(stage.peak);
      text_ += "  " + right(std::to_string(r), 5) + right(pretty(stage.peak.bytes), 12) +
               right(std::to_string(stage.in_flight), 11) + right(percent(share(stage.span - stage.busy)), 9) +
               right(percent(share(stage.exposed)), 11) + (copies ? right(pretty(*stage.without_copies), 12) : "") +
               "  " + shortened(style_, when, width_ - (copies ? 64 : 52)) + "\n";
    }
  }

  void cost() {
    const StepFigures& last = s_.last();
    const bool flops = last.flops.total.count > 0, other = last.other_flops.total.count > 0;
    const bool time = last.time.step.count > 0;
    if (!flops && !other && !time) return;
    heading(s_.steps.size() > 1 ? "Cost of the last step" : "Cost");
    const auto cell = [](bool shown, const std::string& text) {
      return shown ? right(text.starts_with("0 ") ? "" : text, 14) : "";
    };
    text_ +=
        paint(Ink::dim, left("", 12) + cell(flops, "matrix FLOPs") + cell(other, "other FLOPs") + cell(time, "time")) +
        "\n";
    const auto row = [&](std::string_view name, Flops products, Flops rest, Nanos duration) {
      if (products.count == 0 && rest.count == 0 && duration.count == 0) return;
      text_ += "  " + left(name, 10) + cell(flops, pretty(products)) + cell(other, pretty(rest)) +
               cell(time, pretty(duration));
      while (text_.ends_with(' ')) text_.pop_back();
      text_ += "\n";
    };
    const auto optimizer = [](const FlopFigures& f) { return f.total - f.forward - f.recompute - f.backward; };
    row("forward", last.flops.forward, last.other_flops.forward, last.time.forward);
    row("recompute", last.flops.recompute, last.other_flops.recompute, last.time.recompute);
    row("backward", last.flops.backward, last.other_flops.backward, last.time.backward);
    row("optimizer", optimizer(last.flops), optimizer(last.other_flops), last.time.optimizer);
    row("waiting", {}, {}, last.time.exposed);
    row("total", last.flops.total, last.other_flops.total, last.time.step);
    rates(last);
  }

  void rates(const StepFigures& last) {
    std::string line;
    const auto add = [&](const std::string& text) { line += (line.empty() ? "" : std::string(dot())) + text; };
    if (last.recompute_overhead && last.flops.recompute.count > 0)
      add("recomputing adds " + percent(*last.recompute_overhead) + " FLOPs" + time_overhead(last.time));
    if (last.mfu) add("MFU " + percent(*last.mfu));
    if (last.hfu) add("HFU " + percent(*last.hfu));
    text_ += wrapped(style_, "  ", line);
    flops_rule(last.flops);
  }

  static std::string time_overhead(const TimeFigures& time) {
    const Nanos without = time.step - time.recompute;
    if (time.recompute.count == 0 || without.count == 0) return "";
    return " and " + percent(static_cast<double>(time.recompute.count) / static_cast<double>(without.count)) + " time";
  }

  /// Backward as 2 forwards and all of forward recomputed make the 1/3 everyone quotes; here is what differs.
  void flops_rule(const FlopFigures& flops) {
    if (flops.recompute.count == 0 || flops.forward.count == 0) return;
    if (flops.recompute == flops.forward && flops.backward == 2 * flops.forward) return;
    const auto forwards = [&](Flops part) {
      return static_cast<double>(part.count) / static_cast<double>(flops.forward.count);
    };
    text_ += wrapped(style_, "  ",
                     fmt::format("(the textbook's 33.3 % takes backward as 2 forwards and recomputes all of forward: "
                                 "here {:.2f} forwards, and {} recomputed)",
                                 forwards(flops.backward), percent(forwards(flops.recompute))),
                     Ink::dim);
  }

  void textbook() {
    if (!s_.textbook) return;
    const TextbookComparison& c = *s_.textbook;
    const Textbook& t = c.textbook;
    heading("The textbook formula");
    const std::string_view times = style_.ascii ? "x" : "×";
    text_ += wrapped(style_, "  ",
                     fmt::format("ceil({}/{}) {} {} + {} {} {} = {}{}", t.layers, t.interval, times, pretty(t.boundary),
                                 t.interval, times, pretty(t.layer), pretty(c.formula), exactly(c.formula)));
    const Bytes difference = s_.peak().peak.bytes - c.formula;
    text_ += difference.count == 0
                 ? "  The simulated peak is the same.\n"
                 : wrapped(style_, "  ",
                           fmt::format("The simulated peak is {} {}{}:", pretty(magnitude(difference)),
                                       difference.count > 0 ? "higher" : "lower", exactly(magnitude(difference))));
    for (const TextbookReason& reason : c.reasons)
      text_ += wrapped(style_, right(signed_bytes(reason.bytes), 12) + "  ", reason.text);
  }

  void steps() {
    if (s_.steps.size() < 2) return;
    heading("Step by step");
    text_ += paint(Ink::dim,
                   "  " + right("step", 4) + right("start", 12) + right("peak", 12) + right("end", 12) + "  peak in") +
             "\n";
    constexpr std::size_t shown = 8;
    for (std::size_t k = 0; k < s_.steps.size(); ++k) {
      if (s_.steps.size() > shown && k == shown / 2) {
        text_ += fmt::format("  {:>4}\n", style_.ascii ? ".." : "…");
        k = s_.steps.size() - shown / 2;
      }
      const StepFigures& figures = s_.steps[k];
      text_ += fmt::format("  {:>4}", k) + right(pretty(figures.phase_peaks[0].value_or(Bytes{})), 12) +
               right(pretty(figures.peak.bytes), 12) + right(pretty(figures.end), 12) + "  " +
               shortened(style_, moment_text(figures.peak), width_ - 44) + "\n";
    }
  }

  void warnings() {
    if (s_.warnings.empty()) return;
    heading("Warnings");
    for (const std::string& warning : s_.warnings) text_ += wrapped(style_, "  - ", warning, Ink::yellow);
  }

  const Summary& s_;
  const TerminalStyle& style_;
  std::size_t width_;
  std::string text_;
};

void clean(std::string& text) { text = printable(text); }

/// With names and sentences that a terminal can be given.
Summary printable_summary(Summary summary) {
  for (std::string* text : {&summary.scenario, &summary.policy, &summary.limit_name}) clean(*text);
  for (StepFigures& step : summary.steps)
    for (std::string* text : {&step.peak.op, &step.peak.layer}) clean(*text);
  for (PeakTensor& tensor : summary.peak_tensors)
    for (std::string* text : {&tensor.tensor, &tensor.op, &tensor.layer, &tensor.held_by}) clean(*text);
  if (summary.textbook)
    for (TextbookReason& reason : summary.textbook->reasons) clean(reason.text);
  for (std::string& warning : summary.warnings) clean(warning);
  return summary;
}

}  // namespace

std::string out_of_memory_text(const OutOfMemoryFigures& failed) {
  const auto bytes = [](Bytes amount) { return fmt::format("{} ({} B)", pretty(amount), grouped(amount.count)); };
  const std::string where = failed.moment.op.empty() ? "" : "in ";
  std::string out =
      fmt::format("out of memory {}, step {}: '{}' asks for {}, with {} allocated and {} reserved",
                  where + moment_text(failed.moment), failed.moment.step, failed.tensor, bytes(failed.requested),
                  bytes(failed.allocator.allocated), bytes(failed.allocator.reserved));
  if (!failed.shortage) return out;
  const Shortage& why = *failed.shortage;
  return out + fmt::format("; the device has {} left, the largest free block is {}; {} would have fitted",
                           bytes(why.device_free), bytes(why.largest_free), bytes(why.would_have_fitted));
}

std::string summary_text(const Summary& summary, const std::string& chart, const TerminalStyle& style) {
  const Summary shown = printable_summary(summary);
  return Page(shown, style).write(chart);
}

std::string exactly(Bytes bytes) { return bytes.count < 1024 ? "" : "  (" + grouped(bytes.count) + " B)"; }

std::string grouped(std::int64_t value) {
  std::string digits = std::to_string(value);
  for (std::size_t at = digits.size(); at > (value < 0 ? 4U : 3U);) digits.insert(at -= 3, ",");
  return digits;
}

std::string counted(std::size_t n, std::string_view one, std::string_view many) {
  return grouped(static_cast<std::int64_t>(n)) + " " + std::string(n == 1 ? one : many);
}

}  // namespace tidemark
