#include "tidemark/study/express.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "tidemark/base/errors.hpp"
#include "tidemark/plan/choices.hpp"
#include "tidemark/plan/selection.hpp"

namespace tidemark {
namespace {

std::string joined(const std::vector<std::string>& names, const std::string& between) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : between) + name;
  return out;
}

class Expressions {
 public:
  explicit Expressions(const Outline& outline) : outline_(outline), blocks_(block_layers(outline)) {}

  std::vector<Expression> megatron() {
    add(policy::None{}, "no recomputation", "# no flags needed");
    for (const std::vector<std::string>& modules :
         {std::vector<std::string>{"core_attn"}, {"mlp"}, {"core_attn", "mlp"}})
      if (has(modules))
        add(policy::Selective{modules, {}, {}}, joined(modules, " and ") + " of every block",
            "--recompute-granularity selective --recompute-modules " + joined(modules, " "));
    const std::string full = "--recompute-granularity full --recompute-method ";
    for (int n = 1; n <= count(); ++n) {
      const std::string layers = " --recompute-num-layers " + std::to_string(n);
      add(policy::Interval{n, true}, "segments of " + std::to_string(n) + " blocks", full + "uniform" + layers);
      add(policy::Block{n}, first_blocks(n) + " in full", full + "block" + layers);
    }
    return std::move(out_);
  }

  std::vector<Expression> torchtitan() {
    const std::string table = "[activation_checkpoint]\nmode = ";
    add(policy::None{}, "no recomputation", table + "\"none\"");
    for (int n = count(); n > 1; --n)
      add(policy::Selective{{}, {}, {}, n}, "the last of every " + std::to_string(n) + " blocks in full",
          table + "\"selective\"\nselective_ac_option = \"" + std::to_string(n) + "\"");
    // Its op list keeps attention and every second product.
    std::vector<std::string> kept;
    for (const char* pattern : {"mm/2", "attention"})
      if (has({pattern})) kept.emplace_back(pattern);
    if (!kept.empty())
      add(policy::Selective{{}, kept, {}}, "all but attention and every second product",
          table + "\"selective\"\nselective_ac_option = \"op\"");
    add(policy::Full{}, "every block in full", table + "\"full\"");
    return std::move(out_);
  }

  std::vector<Expression> hugging_face() {
    add(policy::None{}, "no recomputation", "TrainingArguments(gradient_checkpointing=False)");
    add(policy::Full{}, "every block in full",
        "TrainingArguments(gradient_checkpointing=True, gradient_checkpointing_kwargs={\"use_reentrant\": False})");
    return std::move(out_);
  }

  std::vector<Expression> selective_contexts() {
    add(policy::None{}, "no recomputation", "# no checkpointing needed");
    for (const std::vector<std::string>& patterns : kept_sets())
      for (int n = 1; n <= count(); ++n) {
        const auto range = std::vector<std::pair<int, int>>{{0, n - 1}};
        const std::string words =
            first_blocks(n) + ": all but " + (patterns.empty() ? "nothing" : joined(patterns, ", "));
        if (patterns.empty())
          add(policy::Block{n}, words, policy_function(patterns, n));
        else
          add(policy::Selective{{}, patterns, range}, words, policy_function(patterns, n));
      }
    return std::move(out_);
  }

 private:
  int count() const { return static_cast<int>(blocks_.size()); }
  void add(PolicyKind kind, std::string words, std::string text) {
    out_.push_back({std::move(kind), std::move(words), std::move(text)});
  }
  std::string first_blocks(int n) const {
    return "the first " + std::to_string(n) + " of " + std::to_string(count()) + " blocks";
  }

  /// Every pattern means some op of the first block.
  bool has(const std::vector<std::string>& patterns) const {
    if (blocks_.empty()) return false;
    const auto& ops = outline_.layers[static_cast<std::size_t>(blocks_.front())].ops;
    return std::ranges::all_of(patterns, [&](const std::string& pattern) {
      const std::string plain = pattern.substr(0, pattern.find('/'));
      return std::ranges::any_of(ops, [&](const OutlineOp& op) { return matches(plain, op); });
    });
  }

  /// Kinds of ops whose results a policy function can keep, in growing sets, and what the model has of them.
  std::vector<std::vector<std::string>> kept_sets() const {
    std::vector<std::vector<std::string>> out = {{}};
    std::vector<std::string> kept;
    for (const char* kind : {"attention", "linear", "addmm", "matmul", "bmm", "softmax", "gelu", "silu"}) {
      if (!has_kind(kind)) continue;
      out.push_back({kind});
      kept.emplace_back(kind);
      if (kept.size() > 1) out.push_back(kept);
    }
    return out;
  }
  bool has_kind(const std::string& kind) const {
    if (blocks_.empty()) return false;
    return std::ranges::any_of(outline_.layers[static_cast<std::size_t>(blocks_.front())].ops,
                               [&](const OutlineOp& op) { return op.kind == kind; });
  }

  /// ATen's names of what the dispatcher sees for a kind.
  static std::vector<std::string> aten(const std::string& kind) {
    if (kind == "linear") return {"mm", "addmm"};
    if (kind == "matmul") return {"mm"};
    if (kind == "attention") return {"_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention"};
    if (kind == "softmax") return {"_softmax"};
    return {kind};
  }

  std::string policy_function(const std::vector<std::string>& patterns, int blocks) const {
    std::set<std::string> names;
    for (const std::string& kind : patterns)
      for (const std::string& name : aten(kind)) names.insert("torch.ops.aten." + name + ".default");
    const std::string kept = joined({names.begin(), names.end()}, ", ");
    return "from functools import partial\n"
           "from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts\n\n"
           "KEPT = " +
           (kept.empty() ? "set()" : "{" + kept + "}") + "\n" +
           "\n\ndef policy(ctx, op, *args, **kwargs):\n"
           "    return CheckpointPolicy.MUST_SAVE if op in KEPT else CheckpointPolicy.PREFER_RECOMPUTE\n\n\n"
           "contexts = partial(create_selective_checkpoint_contexts, policy)\n"
           "for block in blocks[:" +
           std::to_string(blocks) +
           "]:\n"
           "    block.forward = partial(checkpoint, block.forward, use_reentrant=False, context_fn=contexts)";
  }

  const Outline& outline_;
  std::vector<std::int32_t> blocks_;
  std::vector<Expression> out_;
};

}  // namespace

const std::vector<std::string>& frameworks() {
  static const std::vector<std::string> names = {"megatron", "torchtitan", "hf", "sac"};
  return names;
}

std::vector<Expression> expressions(const std::string& framework, const Outline& outline) {
  Expressions all(outline);
  if (framework == "megatron") return all.megatron();
  if (framework == "torchtitan") return all.torchtitan();
  if (framework == "hf") return all.hugging_face();
  if (framework == "sac") return all.selective_contexts();
  throw InputError("--express must be one of " + joined(frameworks(), ", ") + ", not '" + framework + "'");
}

}  // namespace tidemark
