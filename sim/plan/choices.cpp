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
    out_.discards.resize(outline.layers.size());
  }

  /// In regions that are known, ops are chosen: all of them, or those of a selective policy.
  Choices in_regions(const PolicyKind& kind, const std::vector<BlockRegion>& regions) {
    const auto* selective = std::get_if<policy::Selective>(&kind);
    if (selective != nullptr) check_selective(*selective);
    for (const BlockRegion& region : regions) {
      const auto first = blocks_.begin() + static_cast<std::ptrdiff_t>(region.first);
      const std::vector<std::int32_t> layers(first, first + static_cast<std::ptrdiff_t>(region.count));
      if (selective != nullptr)
        select(*selective, layers);
      else
        rerun(layers);
    }
    if (const auto* interval = std::get_if<policy::Interval>(&kind)) warn_of_interval(interval->interval);
    return out_;
  }
  Choices operator()(const policy::Rule& p);

 private:
  void rerun(const std::vector<std::int32_t>& layers) {
    for (const std::int32_t layer : layers) {
      auto& ops = ops_of(layer);
      ops.assign(ops.size(), OpChoice::rerun);
    }
    out_.regions.push_back(layers);
  }

  void warn_of_interval(int interval) {
    const std::size_t n = blocks_.size();
    if (n > 0 && static_cast<std::size_t>(interval) > n)
      out_.warnings.push_back("interval " + std::to_string(interval) + " is above the " + count_of(n, "layer") +
                              ": one segment");
  }

  void check_selective(const policy::Selective& p) const;
  void select(const policy::Selective& p, const std::vector<std::int32_t>& region);
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
  void discard(const std::vector<std::string>& modules, std::int32_t layer);
  void bind_in_place(std::int32_t layer);
  void take_views_along(std::int32_t layer, const std::vector<std::int32_t>& region);

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

void Chooser::check_selective(const policy::Selective& p) const {
  if (p.recompute.empty() && p.keep.empty() && p.layers.empty() && p.every == 1 && p.discard.empty())
    throw InputError("policy selective selects nothing; expected 'recompute', 'keep', 'discard', 'layers' or 'every'");
  if (p.interval > 1 && !p.discard.empty())
    throw InputError("modules that discard their output are a block's own; expected no 'interval'");
  for (const std::string& module : p.discard)
    if (std::ranges::all_of(blocks_, [&](std::int32_t layer) { return discards(module, at(outline_, layer)).empty(); }))
      throw InputError("'discard': no block has the module '" + module + "'");
  check_patterns(p.recompute, outline_, blocks_);
  check_patterns(p.keep, outline_, blocks_);
}

void Chooser::select(const policy::Selective& p, const std::vector<std::int32_t>& region) {
  Selection keep(p.keep), recompute(p.recompute);
  for (const std::int32_t layer : region)
    for (std::size_t k = 0; k < ops_of(layer).size(); ++k) {
      const OutlineOp& op = at(outline_, layer).ops[k];
      const bool all = p.recompute.empty() && p.discard.empty();
      const bool kept = keep.next(op), dropped = recompute.next(op) || all;
      if (dropped) ops_of(layer)[k] = kept ? OpChoice::cached : OpChoice::rerun;
    }
  for (const std::int32_t layer : region) discard(p.discard, layer);
  close_region(region);
}

/// Who reads what is discarded, a view of it too, looks it up when its own backward runs. What runs again anyway need
/// not be discarded.
void Chooser::discard(const std::vector<std::string>& modules, std::int32_t layer) {
  auto& choices = ops_of(layer);
  const auto& ops = at(outline_, layer).ops;
  for (const std::string& module : modules)
    for (Discard& found : discards(module, at(outline_, layer))) {
      std::erase_if(found.ops, [&](std::int32_t k) { return choices[static_cast<std::size_t>(k)] != OpChoice::hold; });
      if (found.ops.empty()) continue;
      for (const std::int32_t k : found.ops) choices[static_cast<std::size_t>(k)] = OpChoice::rerun;
      for (auto k = static_cast<std::size_t>(found.ops.front()); k < ops.size(); ++k) {
        if (choices[k] == OpChoice::rerun) continue;
        const bool reads = std::ranges::any_of(ops[k].inputs, [&](const OpRef& input) {
          return input.layer == layer && std::ranges::find(found.ops, input.op) != found.ops.end();
        });
        if (!reads) continue;
        choices[k] = is_view(ops[k]) ? OpChoice::rerun : OpChoice::cached;
        if (is_view(ops[k])) found.ops.push_back(static_cast<std::int32_t>(k));
      }
      std::ranges::sort(found.ops);
      out_.discards[static_cast<std::size_t>(layer)].push_back(std::move(found));
    }
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

void warn_without_blocks(const PolicyKind& kind, const Outline& outline, Choices& out) {
  if (block_layers(outline).empty() && !std::holds_alternative<policy::None>(kind))
    out.warnings.emplace_back("the model has no blocks: nothing is recomputed");
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
  if (const auto* rule = std::get_if<policy::Rule>(&kind)) {
    Choices out = Chooser(outline, views_along)(*rule);
    warn_without_blocks(kind, outline, out);
    return out;
  }
  const auto regions = block_regions(kind, block_layers(outline).size());
  check(regions.has_value(), "a finished plan leaves no choice");
  return choose(kind, *regions, outline, views_along);
}

Choices choose(const PolicyKind& kind, const std::vector<BlockRegion>& regions, const Outline& outline,
               bool views_along) {
  Choices out = Chooser(outline, views_along).in_regions(kind, regions);
  warn_without_blocks(kind, outline, out);
  return out;
}

}  // namespace tidemark
