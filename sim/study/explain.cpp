#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "tidemark/report/holding.hpp"
#include "tidemark/report/peak.hpp"
#include "tidemark/study/compare.hpp"

namespace tidemark {
namespace {

/// Why a storage stands at the peak, as far as a policy is concerned.
enum class Reason : std::uint8_t {
  parameter,
  optimizer_state,
  gradient,
  input,
  rebuilt,
  kept,      // a recomputed region starts from it
  given_up,  // before backward; forward still holds it
  saved_outside,
  saved_inside,
  working,
};
struct Wording {
  std::string_view what;
  bool untouchable;
};
constexpr std::array<Wording, 10> wordings = {{
    {"parameters", true},
    {"optimizer state", true},
    {"gradients of parameters", true},
    {"inputs of the step", true},
    {"rebuilt by recomputation", false},
    {"kept to recompute from", false},
    {"held by forward and given up before backward", false},
    {"saved outside the blocks", true},
    {"saved by blocks and not recomputed", false},
    {"working memory of the ops that run and gradients on their way", true},
}};

std::string moment_of(const Run& run) {
  const OpId op = run.timeline.events.empty() ? no_id : run.timeline.events[run.timeline.peak_event].op();
  if (op == no_id) return "the start";
  const StepOp& at = run.step.ops[op];
  const std::string layer = at.layer < 0 ? "" : run.step.layers[static_cast<std::size_t>(at.layer)];
  return phase_of_work(at.phase, run.step.names[at.name], layer);
}

std::string share(Bytes part, Bytes whole) {
  const double of = whole.count == 0 ? 0 : static_cast<double>(part.count) / static_cast<double>(whole.count);
  return fmt::format("{} ({:.1f} %)", pretty(part), 100 * of);
}

class PeakReasons {
 public:
  explicit PeakReasons(const Run& run)
      : run_(run),
        storages_(peak_storages(run.step, run.timeline)),
        given_up_(given_up_later(run.step, storages_)),
        recompute_(recompute_at_peak(run.step, storages_)) {}

  const RecomputeAtPeak& recompute() const { return recompute_; }

  std::vector<PeakGroup> groups() const {
    std::array<PeakGroup, wordings.size()> by_reason;
    for (std::size_t i = 0; i < storages_.size(); ++i) {
      const auto reason = static_cast<std::size_t>(reason_of(i));
      const StepStorage& storage = run_.step.storages[storages_[i].storage];
      PeakGroup& group = by_reason[reason];
      if (group.tensors++ == 0) {  // the largest come first
        group.what = wordings[reason].what;
        group.untouchable = wordings[reason].untouchable;
        group.largest = run_.step.names[storage.name];
        group.held_by = held_by(run_.step, run_.timeline, storages_[i]);
      }
      group.bytes += storage.bytes;
    }
    std::vector<PeakGroup> out(by_reason.begin(), by_reason.end());
    std::erase_if(out, [](const PeakGroup& group) { return group.tensors == 0; });
    std::ranges::stable_sort(out, std::greater{}, [](const PeakGroup& group) { return group.bytes; });
    return out;
  }

 private:
  Reason reason_of(std::size_t i) const {
    const PeakStorage& s = storages_[i];
    const StepStorage& storage = run_.step.storages[s.storage];
    switch (storage.category) {
      case Category::parameter:
        return Reason::parameter;
      case Category::optimizer_state:
        return Reason::optimizer_state;
      case Category::gradient:
        return Reason::gradient;
      case Category::input:
        return Reason::input;
      default:
        break;
    }
    if (s.rebuilt) return Reason::rebuilt;
    const auto phase_of = [&](OpId op) { return run_.step.ops[op].phase; };
    if (s.read_by_recompute) return Reason::kept;
    const OpId made_by = run_.timeline.events[s.birth_event].op();
    if (given_up_[i] && made_by != no_id && phase_of(made_by) == Phase::forward) return Reason::given_up;
    const bool saved = storage.category == Category::activation && s.last_reader != no_id &&
                       phase_of(s.last_reader) == Phase::backward;
    if (!saved) return Reason::working;
    return in_block(storage.layer) ? Reason::saved_inside : Reason::saved_outside;
  }

  bool in_block(std::int32_t layer) const {
    return layer >= 0 && static_cast<std::size_t>(layer) < run_.outline.layers.size() &&
           run_.outline.layers[static_cast<std::size_t>(layer)].is_block;
  }

  const Run& run_;
  std::vector<PeakStorage> storages_;
  std::vector<bool> given_up_;
  RecomputeAtPeak recompute_;
};

/// "is 1.20 GiB, 310 MiB (20.5 %) below A's"
std::string against(Bytes peak, Bytes other, std::string_view whose) {
  const Bytes gap{std::abs(peak.count - other.count)};
  if (gap.count == 0) return fmt::format("is {}, as high as {}'s", pretty(peak), whose);
  return fmt::format("is {}, {} {} {}'s", pretty(peak), share(gap, other), peak < other ? "below" : "above", whose);
}

/// What recomputation does at that moment.
std::string role(const RecomputeAtPeak& r, const std::vector<PeakGroup>& groups) {
  const auto holds = [&](Reason reason) {
    const std::string_view what = wordings[static_cast<std::size_t>(reason)].what;
    return std::ranges::any_of(groups, [&](const PeakGroup& group) { return group.what == what; });
  };
  if (!holds(Reason::rebuilt)) {
    if (holds(Reason::given_up)) return "Forward has not yet given up what will be recomputed";
    return holds(Reason::kept) ? "What is recomputed is not there, only what it is recomputed from"
                               : "Recomputation changes nothing that is alive there";
  }
  if (r.layers_recomputed == 1) return "The recomputed layer is rebuilt and alive there";
  if (r.layers_rebuilt == r.layers_recomputed)
    return fmt::format("All {} recomputed layers are rebuilt at once", r.layers_recomputed);
  return fmt::format("{} of {} recomputed layers {} rebuilt and alive there", r.layers_rebuilt, r.layers_recomputed,
                     r.layers_rebuilt == 1 ? "is" : "are");
}

std::string listed(const std::vector<PeakGroup>& groups) {
  constexpr std::size_t most = 4;
  std::string out;
  const std::size_t shown = std::min(groups.size(), most);
  for (std::size_t i = 0; i < shown; ++i) {
    if (i > 0) out += i + 1 == groups.size() ? " and " : ", ";
    out += pretty(groups[i].bytes) + " " + groups[i].what;
    const bool named = groups[i].what != "parameters" && groups[i].what != "optimizer state";
    if (named) out += " (the largest: " + groups[i].largest + ", " + groups[i].held_by + ")";
  }
  if (shown < groups.size()) out += fmt::format(" and {} smaller kinds", groups.size() - shown);
  return out;
}

}  // namespace

PeakExplanation explain(const Run& a, const Run& b) {
  const bool b_recomputes = PeakReasons(b).recompute().any;
  const bool of_b = b_recomputes || !PeakReasons(a).recompute().any;
  const Run& run = of_b ? b : a;
  const Run& other = of_b ? a : b;
  const PeakReasons reasons(run);
  PeakExplanation out{of_b, "", reasons.groups()};

  const std::string_view name = of_b ? "B" : "A", other_name = of_b ? "A" : "B";
  const std::string moment = moment_of(run), other_moment = moment_of(other);
  out.sentence = fmt::format("{}'s peak {}, in {}{}; it is made of {}.", name,
                             against(run.timeline.peak, other.timeline.peak, other_name), moment,
                             moment == other_moment ? fmt::format(", where {}'s is too", other_name)
                                                    : fmt::format(" ({}'s is in {})", other_name, other_moment),
                             listed(out.groups));
  if (!reasons.recompute().any) return out;
  Bytes untouchable;
  std::string what;
  for (const PeakGroup& group : out.groups) {
    if (!group.untouchable) continue;
    untouchable += group.bytes;
    what += (what.empty() ? "" : ", ") + group.what;
  }
  out.sentence += " " + role(reasons.recompute(), out.groups) + ".";
  if (untouchable.count > 0)
    out.sentence += fmt::format(" No recomputation of blocks could touch {} of it: {}.",
                                share(untouchable, run.timeline.peak), what);
  return out;
}

}  // namespace tidemark
