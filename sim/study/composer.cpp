#include "tidemark/study/composer.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <utility>
#include <variant>

#include "composer_model.hpp"
#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

/// Every surroundings without held neighbours, then every one with: each in two places, the models' ends apart.
constexpr std::array<std::string_view, 2> close_layouts = {"aaaabb", "ababba"};
constexpr std::array<std::string_view, 5> gap_layouts = {"habhaa", "hhhaha", "aahabh", "ahahhh", "hhaahh"};

/// What decides which ops of a block run again, and how; which blocks do is apart.
std::string body_of(const Policy& policy) {
  std::string out = std::to_string(static_cast<int>(policy.schedule)) + policy.on_grad_of + "|" +
                    std::to_string(static_cast<int>(policy.checkpointing.kind)) +
                    (policy.checkpointing.early_stop ? "e" : "") + (policy.checkpointing.preserve_rng ? "r" : "") +
                    (policy.checkpointing.offload_parameters ? "p" : "");
  const auto* selective = std::get_if<policy::Selective>(&policy.kind);
  if (selective == nullptr) return out;
  const auto add = [&](const char* key, const std::vector<std::string>& names) {
    out += names.empty() ? "" : key;
    for (const std::string& name : names) out += " " + name;
  };
  add("|recompute", selective->recompute);
  add("|keep", selective->keep);
  add("|discard", selective->discard);
  return out;
}

bool counts_ops(const std::vector<std::string>& patterns) {
  return std::ranges::any_of(patterns, [](const std::string& p) { return p.find('/') != std::string::npos; });
}

/// Kinds whose blocks all choose alike, in regions that stand one after the other.
bool is_composable(const Policy& policy) {
  if (policy.hold_boundaries || !policy.nested.empty() || policy.offload) return false;
  const auto* selective = std::get_if<policy::Selective>(&policy.kind);
  if (selective == nullptr) return true;
  const bool chooses = !selective->recompute.empty() || !selective->keep.empty() || !selective->discard.empty();
  const bool selects = chooses || !selective->layers.empty() || selective->every > 1;
  return selects && !counts_ops(selective->recompute) && !counts_ops(selective->keep);
}

/// Neighbouring regions of one length, or neighbouring blocks that are held.
struct Group {
  std::size_t first = 0, length = 1, times = 1;
  BlockRuns runs = BlockRuns::again;
};

std::vector<Group> groups_of(const std::vector<BlockRegion>& regions, std::size_t blocks) {
  std::vector<Group> out;
  std::size_t next = 0;
  const auto hold_up_to = [&](std::size_t end) {
    if (next < end) out.push_back({next, 1, end - next, BlockRuns::held});
    next = end;
  };
  for (const BlockRegion& region : regions) {
    hold_up_to(region.first);
    const bool same = !out.empty() && out.back().runs == BlockRuns::again && out.back().length == region.count;
    if (same)
      ++out.back().times;
    else
      out.push_back({region.first, region.count, 1, BlockRuns::again});
    next = region.first + region.count;
  }
  hold_up_to(blocks);
  return out;
}

/// Puts a micro-batch's pieces in a row, forward and backward.
class Scorer {
 public:
  Scorer(const BlockLibrary& library, int step, int micro_batch, const std::vector<Group>& groups, Repeats& out)
      : library_(library), step_(step), micro_batch_(micro_batch), groups_(groups), out_(out) {}

  void write() {
    const Group& first = groups_.front();
    const Group& last = groups_.back();
    const bool one = first.length * first.times == 1, alone = last.length * last.times == 1;
    const Surroundings bottom{BlockRuns::edge, first.runs, one ? after(0) : first.runs, false, first.length > 1};
    const Surroundings top{alone ? before(groups_.size() - 1) : last.runs, last.runs, BlockRuns::edge, last.length > 1,
                           false};
    put(BlockPart::below, bottom, 1, 0, 0);
    for (std::size_t g = 0; g < groups_.size(); ++g) write_group(g, true);
    above_ = put(BlockPart::above, top, 1, static_cast<std::int64_t>(last.first + last.length * last.times) - 1, 0);
    for (std::size_t g = groups_.size(); g-- > 0;) write_group(g, false);
    put(BlockPart::below_backward, bottom, 1, 0, 0);
  }
  const LibraryPiece* above() const { return above_; }

 private:
  BlockRuns before(std::size_t g) const { return g == 0 ? BlockRuns::edge : groups_[g - 1].runs; }
  BlockRuns after(std::size_t g) const { return g + 1 == groups_.size() ? BlockRuns::edge : groups_[g + 1].runs; }

  const LibraryPiece* put(BlockPart part, const Surroundings& around, std::uint64_t times, std::int64_t block,
                          std::int64_t direction) {
    if (times == 0) return nullptr;
    const LibraryPiece* piece = library_.find(part, around, step_, micro_batch_);
    if (piece == nullptr) throw NotComposable{"no block was met in these surroundings"};
    out_.add(*piece, times, block, direction);
    return piece;
  }

  /// The first region, those between, the last: only the outer two see other neighbours.
  void write_group(std::size_t g, bool forward) {
    const Group& group = groups_[g];
    if (group.times == 1) return write_region(group, group.first, before(g), after(g), forward);
    const std::size_t last = group.first + (group.times - 1) * group.length;
    const auto stride = static_cast<std::int64_t>(group.length);
    if (forward)
      write_region(group, group.first, before(g), group.runs, forward);
    else
      write_region(group, last, group.runs, after(g), forward);
    if (group.times > 2) {
      out_.open(group.times - 2, forward ? stride : -stride);
      write_region(group, forward ? group.first + group.length : last - group.length, group.runs, group.runs, forward);
      out_.close();
    }
    if (forward)
      write_region(group, last, group.runs, after(g), forward);
    else
      write_region(group, group.first, before(g), group.runs, forward);
  }

  void write_region(const Group& group, std::size_t at, BlockRuns before, BlockRuns after, bool forward) {
    const auto first = static_cast<std::int64_t>(at), last = first + static_cast<std::int64_t>(group.length) - 1;
    const BlockRuns runs = group.runs;
    if (first == last) {
      put(forward ? BlockPart::forward : BlockPart::backward, {before, runs, after, false, false}, 1, first, 0);
      return;
    }
    const Surroundings front{before, runs, runs, false, true}, middle{runs, runs, runs, true, true},
        back{runs, runs, after, true, false};
    const std::uint64_t between = group.length - 2;
    if (forward) {
      put(BlockPart::forward, front, 1, first, 0);
      put(BlockPart::forward, middle, between, first + 1, 1);
      put(BlockPart::forward, back, 1, last, 0);
      return;
    }
    put(BlockPart::early_backward, back, 1, last, 0);
    put(BlockPart::rebuild, front, 1, first, 0);
    put(BlockPart::rebuild, middle, between, first + 1, 1);
    put(BlockPart::rebuild, back, 1, last, 0);
    const bool from_last = library_.unwinds_backward();
    put(BlockPart::unwind, from_last ? back : front, 1, from_last ? last : first, 0);
    put(BlockPart::unwind, middle, between, from_last ? last - 1 : first + 1, from_last ? -1 : 1);
    put(BlockPart::unwind, from_last ? front : back, 1, from_last ? first : last, 0);
    put(BlockPart::backward, back, 1, last, 0);
    put(BlockPart::backward, middle, between, last - 1, -1);
    put(BlockPart::backward, front, 1, first, 0);
  }

  const BlockLibrary& library_;
  const int step_, micro_batch_;
  const std::vector<Group>& groups_;
  Repeats& out_;
  const LibraryPiece* above_ = nullptr;
};

Nanos nanos(Int128 value) {
  if (value > std::numeric_limits<std::int64_t>::max()) throw NotComposable{"time passes 2^63 ns"};
  return Nanos{static_cast<std::int64_t>(value)};
}

Int128 of(const std::array<Int128, phase_names.size()>& by_phase, Phase phase) {
  return by_phase[static_cast<std::size_t>(phase)];
}

/// FLOPs and times of the last step, as summarize() counts them.
void fill_cost(const Repeats::Sums& step, StepFigures& out) {
  out.flops.forward.count = of(step.flops, Phase::forward) + of(step.flops, Phase::loss);
  out.flops.recompute.count = of(step.flops, Phase::recompute);
  out.flops.backward.count = of(step.flops, Phase::backward);
  for (const Int128 phase : step.flops) out.flops.total.count += phase;
  out.time.step = nanos(step.total_time());
  out.time.forward = nanos(of(step.time, Phase::forward) + of(step.time, Phase::loss));
  out.time.recompute = nanos(of(step.time, Phase::recompute));
  out.time.backward = nanos(of(step.time, Phase::backward));
  out.time.optimizer = nanos(of(step.time, Phase::optimizer));
  out.time.exposed = out.time.step - out.time.forward - out.time.recompute - out.time.backward - out.time.optimizer;
}

}  // namespace

struct Composer::Shelf {
  std::once_flag made;
  std::optional<BlockLibrary> library;  // nothing: it cannot be composed
};

/// A whole run as a tree of repetitions, and where its last step is.
struct Composer::Score {
  Repeats repeats;
  std::vector<std::size_t> steps;       // groups under the root, in order
  std::vector<std::uint64_t> first;     // by group: its first step
  const LibraryPiece* above = nullptr;  // of the last step's last micro-batch
};

Composer::Composer(const Scenario& scenario) : model_(std::make_unique<const ComposerModel>(scenario)) {
  conserved_ = score({}, model_->held).repeats.sums();
}

Composer::~Composer() = default;

std::size_t Composer::libraries() const {
  const std::lock_guard<std::mutex> guard(lock_);
  return shelves_.size() * static_cast<std::size_t>(model_->step_kinds * model_->batch_kinds);
}

/// One library for each body, and one more where blocks are held beside those that run again; made by whoever asks
/// first.
const BlockLibrary* Composer::library(const Policy& policy, bool with_gaps) {
  std::shared_ptr<Shelf> shelf;
  {
    const std::lock_guard<std::mutex> guard(lock_);
    std::shared_ptr<Shelf>& place = shelves_[body_of(policy) + (with_gaps ? "|gaps" : "")];
    if (!place) place = std::make_shared<Shelf>();
    shelf = place;
  }
  std::call_once(shelf->made, [&] {
    Policy body = policy;
    if (!std::holds_alternative<policy::Selective>(policy.kind)) body.kind = policy::Full{};
    BlockLibrary made = model_->empty();
    try {
      for (const std::string_view layout : close_layouts) model_->add(made, body, layout);
      if (with_gaps)
        for (const std::string_view layout : gap_layouts) model_->add(made, body, layout);
      made.check_ends_alike(model_->held);
      if (model_->steps > most_kinds)
        for (int m = 0; m < model_->batch_kinds; ++m) made.check_alike(1, m, 2, m);
      if (model_->micro_batches > most_kinds)
        for (int s = 0; s < model_->step_kinds; ++s) made.check_alike(s, 1, s, 2);
      shelf->library = std::move(made);
    } catch (const NotComposable&) {
    } catch (const InputError&) {  // the simulation will say what is wrong with the policy
    }
  });
  return shelf->library ? &*shelf->library : nullptr;
}

std::optional<Summary> Composer::summary(const Policy& policy) {
  if (!is_composable(policy)) return std::nullopt;
  try {
    const auto regions = block_regions(policy.kind, model_->blocks);
    if (!regions) return std::nullopt;
    std::size_t again = 0;
    for (const BlockRegion& region : *regions) again += region.count;
    const BlockLibrary* pieces = library(policy, again < model_->blocks);
    return pieces == nullptr ? std::nullopt : std::optional(compose(*regions, *pieces));
  } catch (const NotComposable&) {
  } catch (const InputError&) {
  }
  return std::nullopt;
}

/// Steps and micro-batches between the first and the last are alike, so one kind of each stands for many.
Composer::Score Composer::score(const std::vector<BlockRegion>& regions, const BlockLibrary& pieces) const {
  Score out;
  const std::vector<Group> groups = groups_of(regions, model_->blocks);
  const auto write_step = [&](int kind, std::uint64_t first, std::uint64_t times) {
    out.steps.push_back(out.repeats.open(times));
    out.first.push_back(first);
    out.repeats.add(model_->whole.start(kind));
    const auto copies = [&](int m) {
      const bool many = model_->micro_batches > most_kinds;
      return many && m == 1 ? static_cast<std::uint64_t>(model_->micro_batches) - 2 : 1;
    };
    for (int m = 0; m < model_->batch_kinds; ++m) {
      Scorer scorer(pieces, kind, m, groups, out.repeats);
      out.repeats.open(copies(m));
      scorer.write();
      out.repeats.close();
      out.above = scorer.above();
    }
    out.repeats.add(model_->whole.tail(kind));
    for (int m = 0; m < model_->batch_kinds; ++m) out.repeats.add(model_->whole.returned(kind, m), copies(m));
    out.repeats.add(model_->whole.end(kind));
    out.repeats.close();
  };
  for (int kind = 0; kind < model_->step_kinds; ++kind) {
    const bool many = model_->steps > most_kinds;
    const auto all = static_cast<std::uint64_t>(model_->steps);
    const std::uint64_t first = many && kind == 2 ? all - 1 : static_cast<std::uint64_t>(kind);
    write_step(kind, first, many && kind == 1 ? all - 2 : 1);
  }
  out.repeats.finish();
  return out;
}

Summary Composer::compose(const std::vector<BlockRegion>& regions, const BlockLibrary& pieces) const {
  const Score score = this->score(regions, pieces);
  const Repeats& all = score.repeats;
  const Repeats::Sums total = all.sums();
  // What recomputation cannot change: what the run leaves behind, and the work of forward and backward.
  const auto keeps = [&](Phase phase) { return of(total.flops, phase) == of(conserved_.flops, phase); };
  if (total.net != conserved_.net || !keeps(Phase::forward) || !keeps(Phase::loss) || !keeps(Phase::backward))
    throw NotComposable{"the pieces do not add up"};

  Summary out;
  out.scenario = model_->facts.name;
  out.steps.resize(2);
  StepFigures& peak = out.steps.front();
  StepFigures& last = out.steps.back();
  peak.peak.bytes = model_->start + all.whole().crest;
  peak.at_peak = model_->at_start;
  if (const auto crest = all.crest()) {
    const auto& piece = static_cast<const LibraryPiece&>(*crest->piece);
    const std::size_t group = crest->group;
    const auto at = static_cast<std::size_t>(std::ranges::find(score.steps, group) - score.steps.begin());
    peak.peak.step = static_cast<int>(score.first[at] + crest->turn);
    peak.peak.time = nanos(crest->before.total_time() + piece.before_crest.count);
    peak.peak.phase = piece.phase;
    peak.peak.op =
        piece.of_block
            ? model_->layers[model_->first_block + static_cast<std::size_t>(crest->block + piece.offset)] + piece.op
            : piece.op;
    for (std::size_t c = 0; c < peak.at_peak.size(); ++c) peak.at_peak[c] += crest->before.net[c] + piece.at_crest[c];
  }
  fill_cost(model_->steps == 1 ? total : all.sums(score.steps.back()), last);
  add_rates(last, model_->model_flops, model_->facts.flops_per_second);
  // Without a head the last block ends the forward pass.
  last.forward_end = model_->start + all.level_before_last(*score.above) + score.above->forward_end.value_or(Bytes{});
  last.end = model_->start + all.whole().net;
  if (model_->parameters > 0) out.parameters = model_->parameters;
  judge_fit(model_->facts, peak.peak.bytes, out);
  out.events = model_->initial_events + total.events;
  out.ops = total.ops;
  return out;
}

}  // namespace tidemark
