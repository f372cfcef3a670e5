#include "tidemark/input/plan_file.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "tidemark/input/quantities.hpp"
#include "tidemark/input/settings.hpp"

namespace tidemark {
namespace {

constexpr std::array<std::string_view, 10> action_names = {"forward", "recompute",     "loss",          "backward",
                                                           "drop",    "discard_input", "discard_saved", "copy_out",
                                                           "copy_in", "copy_wait"};
constexpr std::array<std::string_view, 3> keep_names = {"none", "input", "all"};
constexpr std::array<std::string_view, 4> checkpointing_names = {"direct", "reentrant", "nonreentrant", "offload"};
constexpr std::int64_t max_plan_bytes = 64 << 20;
constexpr std::int64_t max_region = 1'000'000'000;

template <std::size_t N>
std::size_t index_of(const std::array<std::string_view, N>& names, std::string_view name) {
  return static_cast<std::size_t>(std::ranges::find(names, name) - names.begin());
}

bool is_word(std::string_view text) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  };
  const bool letter_first = !text.empty() && !(text[0] >= '0' && text[0] <= '9') && text[0] != '.';
  return letter_first && std::ranges::all_of(text, plain) && text != "null" && text != "true" && text != "false";
}

/// Plain where that is safe, else in quotes.
std::string written(const std::string& name) {
  if (is_word(name)) return name;
  std::string out = "\"";
  for (const char c : name) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

/// Numbers of layers in both ways: a Plan counts all layers, a file counts blocks and names the others.
class Layers {
 public:
  explicit Layers(const Outline& outline) : outline_(outline) {
    for (std::size_t i = 0; i < outline.layers.size(); ++i) {
      block_number_.push_back(outline.layers[i].is_block ? static_cast<int>(blocks_.size()) : -1);
      if (outline.layers[i].is_block) blocks_.push_back(static_cast<std::int32_t>(i));
    }
  }

  std::string name(std::int32_t layer) const {
    const auto i = static_cast<std::size_t>(layer);
    if (i == outline_.layers.size()) return std::to_string(blocks_.size());  // what the loss reads, of a discard
    return block_number_[i] >= 0 ? std::to_string(block_number_[i]) : written(outline_.layers[i].name);
  }

  std::int32_t number(const Field& field, bool may_be_loss) const {
    const std::string name = text(field);
    const auto block = field.value->quoted ? std::nullopt : parse_whole(name);
    if (block) {
      if (may_be_loss && *block == static_cast<std::int64_t>(blocks_.size()))
        return static_cast<std::int32_t>(outline_.layers.size());
      if (*block >= static_cast<std::int64_t>(blocks_.size()))
        field.fail(fmt::format("'layer' {} is not one of the {} blocks, which count from 0", *block, blocks_.size()));
      return blocks_[static_cast<std::size_t>(*block)];
    }
    std::vector<std::string> known;
    for (const OutlineLayer& layer : outline_.layers) {
      if (layer.name == name) return static_cast<std::int32_t>(known.size());
      known.push_back(layer.name);
    }
    field.fail(
        fmt::format("unknown layer {}{}", shown(*field.value), known.size() > 20 ? "" : did_you_mean(name, known)));
  }

  bool has(std::int32_t number) const { return static_cast<std::size_t>(number) < outline_.layers.size(); }
  const OutlineLayer& layer(std::int32_t number) const { return outline_.layers[static_cast<std::size_t>(number)]; }

 private:
  const Outline& outline_;
  std::vector<int> block_number_;     // by layer; -1 for one that is no block
  std::vector<std::int32_t> blocks_;  // layer by block
};

std::vector<std::int32_t> read_ops(const Field& field, const OutlineLayer& layer) {
  std::vector<std::int32_t> out;
  std::vector<std::string> known;
  for (const OutlineOp& op : layer.ops) known.push_back(op.name);
  for (const Field& item : items(field)) {
    const auto found = std::ranges::find(known, text(item));
    if (found == known.end())
      item.fail(
          fmt::format("layer '{}' has no op {}{}", layer.name, shown(*item.value), did_you_mean(text(item), known)));
    const auto op = static_cast<std::int32_t>(found - known.begin());
    if (!out.empty() && op <= out.back())
      item.fail(fmt::format("op {} is out of order; expected the layer's own order, each op once", shown(*item.value)));
    out.push_back(op);
  }
  if (out.empty()) field.fail("'ops' is empty; leave it out for the whole layer");
  return out;
}

PlanStep read_step(const DocPtr& node, const Layers& layers) {
  const YamlMap map(node, block("plan_step"));
  PlanStep step;
  step.action = static_cast<Action>(index_of(action_names, choice(map.require("op"))));
  step.keep = static_cast<Keep>(index_of(keep_names, map.get("keep", choice, std::string("all"))));
  const auto layer = map.optional("layer");
  if (layer) step.layer = layers.number(*layer, step.action == Action::discard_input);
  if (!layer && step.action != Action::loss) map.require("layer");
  if (const auto ops = map.optional("ops")) {
    if (!layer || !layers.has(step.layer)) ops->fail("'ops' needs a 'layer'");
    step.ops = read_ops(*ops, layers.layer(step.layer));
  }
  if (const auto region = map.optional("region"))
    step.region = static_cast<std::int32_t>(whole_number(*region, 0, max_region));
  step.refills = map.get("refill", boolean, step.refills);
  if (step.refills && (step.action != Action::recompute || step.ops.empty()))
    map.optional("refill")->fail("'refill' is for a recompute of some ops");
  return step;
}

}  // namespace

Checkpointing read_checkpointing(const DocPtr& node) {
  const YamlMap map(expanded(node, "checkpointing"), block("checkpointing"));
  Checkpointing how;
  how.kind = static_cast<Checkpointing::Kind>(index_of(checkpointing_names, choice(map.require("kind"))));
  how.early_stop = map.get("early_stop", boolean, how.early_stop);
  how.preserve_rng = map.get("preserve_rng", boolean, how.preserve_rng);
  if (const auto parameters = map.optional("parameters")) {
    if (how.kind != Checkpointing::Kind::offload) parameters->fail("'parameters' is for checkpointing offload only");
    how.offload_parameters = boolean(*parameters);
  }
  return how;
}

namespace {

Plan plan_of(const DocPtr& root, const Outline& outline) {
  const YamlMap map(root, block("plan"));
  const Field steps = map.require("steps");
  if (steps.value->kind != DocNode::Kind::list) steps.must_be("a list of steps");
  const Layers layers(outline);
  Plan plan;
  for (const DocPtr& item : steps.value->items) plan.steps.push_back(read_step(item, layers));
  if (const auto how = map.optional("checkpointing")) plan.checkpointing = read_checkpointing(how->value);
  if (const auto copies = map.optional("copies")) {
    const YamlMap how(copies->value, block("copies"));
    plan.copies.min_size = how.get("min_size", size, plan.copies.min_size);
    plan.copies.free_at_wait = how.get("free", choice, std::string("copied")) == "waited";
  }
  plan.hold_boundaries = map.get("boundaries", choice, std::string("release")) == "hold";
  plan.warnings = map.get("warnings", texts, std::vector<std::string>{});
  return plan;
}

std::string checkpointing_line(const Checkpointing& how) {
  if (how == Checkpointing{}) return "";
  return fmt::format("checkpointing: {{kind: {}, early_stop: {}, preserve_rng: {}{}}}\n",
                     checkpointing_names[static_cast<std::size_t>(how.kind)], how.early_stop, how.preserve_rng,
                     how.offload_parameters ? ", parameters: true" : "");
}

std::string copies_line(const Copies& how) {
  if (how == Copies{}) return "";
  return fmt::format("copies: {{min_size: {} B, free: {}}}\n", how.min_size.count,
                     how.free_at_wait ? "waited" : "copied");
}

std::string step_line(const PlanStep& step, const Layers& layers) {
  std::string out = fmt::format("  - {{op: {}", action_names[static_cast<std::size_t>(step.action)]);
  if (step.layer >= 0) out += ", layer: " + layers.name(step.layer);
  std::string ops;
  for (const std::int32_t op : step.ops)
    ops += (ops.empty() ? "" : ", ") + written(layers.layer(step.layer).ops[static_cast<std::size_t>(op)].name);
  if (!ops.empty()) out += ", ops: [" + ops + "]";
  if (step.keep != Keep::all) out += fmt::format(", keep: {}", keep_names[static_cast<std::size_t>(step.keep)]);
  if (step.region >= 0) out += fmt::format(", region: {}", step.region);
  if (step.refills) out += ", refill: true";
  return out + "}\n";
}

}  // namespace

std::string write_plan(const Plan& plan, const Outline& outline) {
  const Layers layers(outline);
  std::string out = checkpointing_line(plan.checkpointing) + copies_line(plan.copies);
  if (plan.hold_boundaries) out += "boundaries: hold\n";
  if (!plan.warnings.empty()) out += "warnings:\n";
  for (const std::string& warning : plan.warnings) out += "  - " + written(warning) + "\n";
  out += plan.steps.empty() ? "steps: []\n" : "steps:\n";
  for (const PlanStep& step : plan.steps) out += step_line(step, layers);
  return out;
}

Plan read_plan(const std::string& path, const Outline& outline) {
  return plan_of(read_yaml(path, "a plan (YAML)", max_plan_bytes), outline);
}

Plan parse_plan(const std::string& text, const std::string& name, const Outline& outline) {
  return plan_of(parse_yaml(text, {name, ""}), outline);
}

}  // namespace tidemark
