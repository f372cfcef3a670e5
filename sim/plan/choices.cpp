#include "tidemark/plan/choices.hpp"

#include <algorithm>

#include "tidemark/base/errors.hpp"
#include "tidemark/formula/formula.hpp"
#include "tidemark/plan/selection.hpp"

namespace tidemark {
namespace {

const OutlineLayer& at(const Outline& outline, std::int32_t layer) {
  return outline.layers[static_cast<std::size_t>(layer)];
}

std::string count_of(std::size_t n, const std::string& thing) {
  return std::to_string(n) + " " + thing + (n == 1 ? "" : "s");
}

/// Collects regions of blocks by number; everything else is held.
class Chooser {
 public:
  Chooser(const Outline& outline, bool views_along)
      : outline_(outline), blocks_(block_layers(outline)), views_along_(views_along) {
    for (const OutlineLayer& layer : outline.layers) out_.ops.emplace_back(layer.ops.size(), OpChoice::hold);
  }

  Choices operator()(const policy::None&) { return out_; }
  Choices operator()(const policy::Full&) { return segments(1, true); }
  Choices operator()(const policy::Interval& p) {
    if (p.interval < 1) throw InputError("'interval' must be at least 1, not " + std::to_string(p.interval));
    return segments(static_cast<std::size_t>(p.interval), p.checkpoint_last);
  }
  Choices operator()(const policy::Sqrt& p) {
    const auto interval = optimal_segment(static_cast<std::int64_t>(blocks_.size()));
    return segments(static_cast<std::size_t>(std::max<std::int64_t>(interval, 1)), p.checkpoint_last);
  }
  Choices operator()(const policy::Sequential& p) {
    const auto count = static_cast<std::size_t>(std::max(p.segments, 0));
    if (p.segments < 1) throw InputError("'segments' must be at least 1, not " + std::to_string(p.segments));
    if (count > blocks_.size())
      throw InputError("'segments' must be at most the model's " + count_of(blocks_.size(), "layer") + ", not " +
                       std::to_string(count));
    const std::size_t size = blocks_.size() / count;
    for (std::size_t k = 0; k + 1 < count; ++k) region(k * size, (k + 1) * size);
    return out_;
  }
  Choices operator()(const policy::Block& p) {
    if (p.layers < 0 || static_cast<std::size_t>(p.layers) > blocks_.size())
      throw InputError("'layers' must be from 0 to the model's " + count_of(blocks_.size(), "layer") + ", not " +
                       std::to_string(p.layers));
    for (std::size_t i = 0; i < static_cast<std::size_t>(p.layers); ++i) region(i, i + 1);
    return out_;
  }
  Choices operator()(const policy::Whole&) {
    if (!blocks_.empty()) region(0, blocks_.size());
    return out_;
  }
  Choices operator()(const policy::Selective& p);
  Choices operator()(const policy::Rule& p);
  Choices operator()(const policy::Sequence&) { return ordered_already(); }
  Choices operator()(const policy::Given&) { return ordered_already(); }

 private:
  Choices ordered_already() {
    check(false, "a finished plan leaves no choice");
    return out_;
  }

  void region(std::size_t first, std::size_t end) {
    auto& layers = out_.regions.emplace_back();
    for (std::size_t i = first; i < end; ++i) {
      layers.push_back(blocks_[i]);
      auto& ops = ops_of(blocks_[i]);
      ops.assign(ops.size(), OpChoice::rerun);
    }
  }

  Choices segments(std::size_t interval, bool checkpoint_last) {
    const std::size_t n = blocks_.size();
    if (interval > n && n > 0)
      out_.warnings.push_back("interval " + std::to_string(interval) + " is above the " + count_of(n, "layer") +
                              ": one segment");
    for (std::size_t first = 0; first < n; first += interval) {
      const std::size_t end = std::min(first + interval, n);
      if (end < n || checkpoint_last) region(first, end);
    }
    return out_;
  }

  std::vector<OpChoice>& ops_of(std::int32_t layer) { return out_.ops[static_cast<std::size_t>(layer)]; }
  void close_region(const std::vector<std::int32_t>& layers) {
    for (const std::int32_t layer : layers) {
      bind_in_place(layer);
      if (views_along_) take_views_along(layer, layers);
    }
    if (std::ranges::any_of(layers, [&](std::int32_t layer) {
          return out_.has(layer, OpChoice::rerun) || out_.has(layer, OpChoice::cached);
        }))
      out_.regions.push_back(layers);
  }
  void bind_in_place(std::int32_t layer);
  void take_views_along(std::int32_t layer, const std::vector<std::int32_t>& region);
  std::vector<std::int32_t> selected_blocks(const policy::Selective& p) const;

  const Outline& outline_;
  const std::vector<std::int32_t> blocks_;
  const bool views_along_;
  Choices out_;
};

/// What is written in place and what it writes over are one storage: one choice for both, to cache before to run again.
void Chooser::bind_in_place(std::int32_t layer) {
  auto& choices = ops_of(layer);
  const auto& ops = at(outline_, layer).ops;
  const auto bind = [&](std::size_t k) {
    const auto& over = ops[k].overwrites;
    if (!over || over->layer != layer) return;
    OpChoice& made = choices[static_cast<std::size_t>(over->op)];
    made = choices[k] = std::max(made, choices[k]);
  };
  for (std::size_t k = 0; k < ops.size(); ++k) bind(k);
  for (std::size_t k = ops.size(); k-- > 0;) bind(k);
}

/// There is nothing to cache of a view, and a view of what is dropped would keep that alive by its storage: either is
/// made again.
void Chooser::take_views_along(std::int32_t layer, const std::vector<std::int32_t>& region) {
  auto& choices = ops_of(layer);
  const auto& ops = at(outline_, layer).ops;
  for (std::size_t k = 0; k < ops.size(); ++k) {
    if (!is_view(ops[k])) continue;
    if (choices[k] == OpChoice::cached) choices[k] = OpChoice::rerun;
    if (std::ranges::any_of(ops[k].inputs, [&](const OpRef& input) {
          return std::ranges::find(region, input.layer) != region.end() &&
                 ops_of(input.layer)[static_cast<std::size_t>(input.op)] == OpChoice::rerun;
        }))
      choices[k] = OpChoice::rerun;
  }
}

std::vector<std::int32_t> Chooser::selected_blocks(const policy::Selective& p) const {
  const auto n = static_cast<int>(blocks_.size());
  std::vector<bool> in_range(blocks_.size(), p.layers.empty());
  for (const auto& [first, last] : p.layers) {
    const std::string range = std::to_string(first) + "-" + std::to_string(last);
    if (first < 0 || last < first || last >= n)
      throw InputError("'layers' must be ranges of the layers 0 to " + std::to_string(n - 1) + ", not " + range);
    std::fill(in_range.begin() + first, in_range.begin() + last + 1, true);
  }
  std::vector<std::int32_t> selected;
  int counted = 0;
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    if (in_range[i] && ++counted % p.every == 0) selected.push_back(blocks_[i]);
  return selected;
}

Choices Chooser::operator()(const policy::Selective& p) {
  if (p.every < 1) throw InputError("'every' must be at least 1, not " + std::to_string(p.every));
  if (p.interval < 1) throw InputError("'interval' must be at least 1, not " + std::to_string(p.interval));
  if (p.recompute.empty() && p.keep.empty() && p.layers.empty() && p.every == 1)
    throw InputError("policy selective selects nothing; expected 'recompute', 'keep', 'layers' or 'every'");
  check_patterns(p.recompute, outline_, blocks_);
  check_patterns(p.keep, outline_, blocks_);
  const std::vector<std::int32_t> selected = selected_blocks(p);
  for (std::size_t first = 0; first < selected.size();) {
    // A region is of neighbours; a gap in the selection ends it.
    std::vector<std::int32_t> region = {selected[first++]};
    while (region.size() < static_cast<std::size_t>(p.interval) && first < selected.size() &&
           selected[first] == region.back() + 1)
      region.push_back(selected[first++]);
    Selection keep(p.keep), recompute(p.recompute);
    for (const std::int32_t layer : region)
      for (std::size_t k = 0; k < ops_of(layer).size(); ++k) {
        const OutlineOp& op = at(outline_, layer).ops[k];
        const bool kept = keep.next(op), dropped = recompute.next(op) || p.recompute.empty();
        if (dropped) ops_of(layer)[k] = kept ? OpChoice::cached : OpChoice::rerun;
      }
    close_region(region);
  }
  return out_;
}

/// A layer of a type is asked about as a whole. In a block, the ops under "attention" are asked about as attention and
/// those under "mlp" or "ffn" as a feed-forward layer. Bytes: what those ops save.
Choices Chooser::operator()(const policy::Rule& p) {
  if (!(p.ffn_max_ratio >= 0)) throw InputError("the rule's ratio must be at least 0");
  const RecomputeLimits limits{static_cast<double>(p.attention_threshold.count),
                               static_cast<double>(p.ffn_threshold.count), p.ffn_max_ratio};
  const auto step_flops = static_cast<double>(outline_.step_flops.count);
  const auto ask = [&](std::int32_t layer, const std::string& type, const std::vector<bool>& part) {
    Bytes bytes;
    Flops flops;
    const auto& ops = at(outline_, layer).ops;
    for (std::size_t k = 0; k < ops.size(); ++k) {
      if (!part[k]) continue;
      bytes += ops[k].saved_bytes;
      flops += ops[k].forward_flops;
    }
    const double ratio = step_flops > 0 ? static_cast<double>(flops.count) / step_flops : 0;
    if (!should_recompute(type, static_cast<double>(bytes.count), ratio, limits)) return;
    for (std::size_t k = 0; k < ops.size(); ++k)
      if (part[k]) ops_of(layer)[k] = OpChoice::rerun;
  };
  for (const std::int32_t layer : blocks_) {
    const OutlineLayer& row = at(outline_, layer);
    if (row.type == "block") {
      ask(layer, "attention", matching_ops({"attention"}, row));
      ask(layer, "ffn", matching_ops({"mlp", "ffn"}, row));
    } else {
      ask(layer, row.type, std::vector<bool>(row.ops.size(), true));
    }
    close_region({layer});
  }
  return out_;
}

}  // namespace

bool Choices::has(std::int32_t layer, OpChoice choice) const {
  return std::ranges::find(ops[static_cast<std::size_t>(layer)], choice) != ops[static_cast<std::size_t>(layer)].end();
}

bool Choices::is_whole(std::int32_t layer) const {
  return has(layer, OpChoice::rerun) && !has(layer, OpChoice::hold) && !has(layer, OpChoice::cached);
}

bool Choices::has_functions(std::int32_t layer) const {
  return has(layer, OpChoice::rerun) && has(layer, OpChoice::hold) && !has(layer, OpChoice::cached);
}

std::vector<std::int32_t> block_layers(const Outline& outline) {
  std::vector<std::int32_t> out;
  for (std::size_t i = 0; i < outline.layers.size(); ++i)
    if (outline.layers[i].is_block) out.push_back(static_cast<std::int32_t>(i));
  return out;
}

Choices choose(const PolicyKind& kind, const Outline& outline, bool views_along) {
  Chooser chooser(outline, views_along);
  Choices out = std::visit(chooser, kind);
  if (block_layers(outline).empty() && !std::holds_alternative<policy::None>(kind))
    out.warnings.emplace_back("the model has no blocks: nothing is recomputed");
  return out;
}

}  // namespace tidemark
