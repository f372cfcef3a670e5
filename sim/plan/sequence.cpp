#include "tidemark/plan/sequence.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <sstream>
#include <string_view>

#include "tidemark/base/errors.hpp"
#include "tidemark/plan/choices.hpp"

namespace tidemark {
namespace {

struct Letters {
  std::string_view text;
  Action action;
  Keep keep;
};
/// A letter sequence stands before any that begins with it.
constexpr std::array<Letters, 12> alphabet = {{{"Fe", Action::forward, Keep::all},
                                               {"Fc", Action::forward, Keep::input},
                                               {"Fn", Action::forward, Keep::none},
                                               {"B", Action::backward, Keep::all},
                                               {"Dxbar", Action::discard_saved, Keep::all},
                                               {"Dx", Action::discard_input, Keep::all},
                                               {"D", Action::drop, Keep::all},
                                               {"Outx", Action::copy_out, Keep::input},
                                               {"Out", Action::copy_out, Keep::all},
                                               {"Inx", Action::copy_in, Keep::input},
                                               {"In", Action::copy_in, Keep::all},
                                               {"Wait", Action::copy_wait, Keep::all}}};

bool is_loss(const OutlineLayer& layer) { return !layer.is_block && layer.name == "loss"; }

std::int32_t layer_count(const Outline& outline) { return static_cast<std::int32_t>(outline.layers.size()); }

/// Adds the layers that are no blocks, in full, where they belong.
std::vector<PlanStep> with_other_layers(const std::vector<PlanStep>& steps, const Outline& outline) {
  std::vector<PlanStep> out;
  std::int32_t next_forward = 0;
  std::int32_t next_backward = layer_count(outline) - 1;
  const auto other = [&](std::int32_t layer) { return !outline.layers[static_cast<std::size_t>(layer)].is_block; };
  const auto forward_up_to = [&](std::int32_t end) {
    for (; next_forward < end; ++next_forward)
      if (other(next_forward) && !is_loss(outline.layers[static_cast<std::size_t>(next_forward)]))
        out.push_back({Action::forward, next_forward, {}, Keep::all, -1});
  };
  const auto backward_of_others = [&] {
    for (; next_backward >= 0 && other(next_backward); --next_backward)
      out.push_back({Action::backward, next_backward, {}, Keep::all, -1});
  };
  for (const PlanStep& step : steps) {
    if (step.action == Action::forward) forward_up_to(std::min(step.layer, layer_count(outline)));
    if (step.action == Action::loss) forward_up_to(layer_count(outline));
    out.push_back(step);
    if (step.action == Action::loss) backward_of_others();
    if (step.action != Action::backward || step.layer != next_backward) continue;
    const bool finished = step.ops.empty() || step.ops.front() == 0;
    if (!finished) continue;
    --next_backward;
    backward_of_others();
  }
  return out;
}

class Parser {
 public:
  explicit Parser(const Outline& outline)
      : outline_(outline), blocks_(block_layers(outline)), seen_(outline.layers.size(), false) {}

  std::vector<PlanStep> steps(const std::string& text) {
    std::istringstream in(text);
    std::vector<PlanStep> out;
    while (in >> token_) {
      ++position_;
      out.push_back(step());
    }
    return out;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw InputError("token " + std::to_string(position_) + " of the sequence, '" + token_ + "', " + why);
  }

  PlanStep step();
  std::int32_t layer(std::string_view& rest, Action action);
  std::int32_t number(std::string_view& rest) const;
  std::vector<std::int32_t> ops(std::string_view rest, std::int32_t layer) const;

  const Outline& outline_;
  const std::vector<std::int32_t> blocks_;
  std::vector<bool> seen_;  // by layer: its forward has been named
  std::string token_;
  int position_ = 0;
};

PlanStep Parser::step() {
  if (token_ == "L") return {Action::loss, -1, {}, Keep::all, -1};
  const auto letters = std::ranges::find_if(alphabet, [&](const Letters& l) { return token_.starts_with(l.text); });
  if (letters == alphabet.end())
    refuse("is none of L, Fe, Fc, Fn, B, D, Dx, Dxbar, Out, In, Outx, Inx, Wait with a block's number");
  std::string_view rest = std::string_view(token_).substr(letters->text.size());
  PlanStep out{letters->action, layer(rest, letters->action), {}, letters->keep, -1};
  if (!rest.empty()) out.ops = ops(rest, out.layer);
  if (out.action != Action::forward) return out;
  if (seen_[static_cast<std::size_t>(out.layer)]) out.action = Action::recompute;
  seen_[static_cast<std::size_t>(out.layer)] = true;
  return out;
}

/// Takes "3" or "(head)" off `rest`.
std::int32_t Parser::layer(std::string_view& rest, Action action) {
  if (rest.starts_with('(')) {
    const std::size_t end = rest.find(')');
    if (end == std::string_view::npos) refuse("lacks a ')'");
    const std::string_view name = rest.substr(1, end - 1);
    rest.remove_prefix(end + 1);
    const auto found = std::ranges::find(outline_.layers, name, &OutlineLayer::name);
    if (found == outline_.layers.end()) refuse("names no layer of the model");
    return static_cast<std::int32_t>(found - outline_.layers.begin());
  }
  std::int32_t block = number(rest);
  const auto last = static_cast<std::int32_t>(blocks_.size()) - 1;
  // The saved set of rotor's index i is what the block before made; x_(n) is the output of the last block.
  if (action == Action::discard_saved) {
    if (block < 1 || block > last + 1) refuse("must name a number from 1 to " + std::to_string(last + 1));
    return blocks_[static_cast<std::size_t>(block - 1)];
  }
  if (action == Action::discard_input && outline_.is_chain && block == last + 1) return block;
  if (block > last) refuse("must name a block from 0 to " + std::to_string(last));
  return blocks_[static_cast<std::size_t>(block)];
}

std::int32_t Parser::number(std::string_view& rest) const {
  std::int32_t value = -1;
  const auto [end, fault] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (fault != std::errc{} || value < 0) refuse("lacks a number");
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  return value;
}

/// "[0,2-5]" as 0 2 3 4 5; all of a layer's ops are written without brackets.
std::vector<std::int32_t> Parser::ops(std::string_view rest, std::int32_t layer) const {
  if (layer >= layer_count(outline_) || !rest.starts_with('[') || !rest.ends_with(']'))
    refuse("has something after its number; expected ops as in [0,2-5], or nothing");
  rest = rest.substr(1, rest.size() - 2);
  const auto count = static_cast<std::int32_t>(outline_.layers[static_cast<std::size_t>(layer)].ops.size());
  std::vector<std::int32_t> out;
  while (true) {
    const std::int32_t first = number(rest);
    std::int32_t last = first;
    if (rest.starts_with('-')) {
      rest.remove_prefix(1);
      last = number(rest);
    }
    if (last < first || (!out.empty() && first <= out.back())) refuse("must name ops in ascending order");
    if (last >= count) refuse("names op " + std::to_string(last) + " of " + std::to_string(count));
    for (std::int32_t k = first; k <= last; ++k) out.push_back(k);
    if (rest.empty()) break;
    if (!rest.starts_with(',')) refuse("must separate ops with commas");
    rest.remove_prefix(1);
  }
  return out;
}

std::string range_list(const std::vector<std::int32_t>& ops) {
  std::string out;
  for (std::size_t i = 0; i < ops.size();) {
    std::size_t end = i + 1;
    while (end < ops.size() && ops[end] == ops[end - 1] + 1) ++end;
    out += (out.empty() ? "" : ",") + std::to_string(ops[i]);
    if (end - i > 1) out += "-" + std::to_string(ops[end - 1]);
    i = end;
  }
  return out;
}

class Printer {
 public:
  explicit Printer(const Outline& outline) : outline_(outline), block_of_(outline.layers.size(), -1) {
    std::int32_t block = 0;
    for (const std::int32_t layer : block_layers(outline)) block_of_[static_cast<std::size_t>(layer)] = block++;
    blocks_ = block;
  }

  bool is_block(const PlanStep& step) const { return step.layer < 0 || block_of(step.layer) >= 0; }

  std::string token(const PlanStep& step) const {
    if (step.action == Action::loss) return "L";
    const Action letter = step.action == Action::recompute ? Action::forward : step.action;
    const bool keeps = letter == Action::forward || letter == Action::copy_out || letter == Action::copy_in;
    const auto letters = std::ranges::find_if(
        alphabet, [&](const Letters& l) { return l.action == letter && (!keeps || l.keep == step.keep); });
    std::string out(letters->text);
    const std::int32_t block = block_of(step.layer);
    if (block < 0)
      out += "(" + outline_.layers[static_cast<std::size_t>(step.layer)].name + ")";
    else
      out += std::to_string(step.action == Action::discard_saved ? block + 1 : block);
    if (!step.ops.empty()) out += "[" + range_list(step.ops) + "]";
    return out;
  }

 private:
  /// The input of "the layer after the last" of a chain is its output.
  std::int32_t block_of(std::int32_t layer) const {
    return layer < layer_count(outline_) ? block_of_[static_cast<std::size_t>(layer)] : blocks_;
  }

  const Outline& outline_;
  std::vector<std::int32_t> block_of_;  // by layer; -1 is no block
  std::int32_t blocks_ = 0;
};

bool same_but_region(const PlanStep& a, const PlanStep& b) {
  return a.action == b.action && a.layer == b.layer && a.ops == b.ops && a.keep == b.keep;
}

}  // namespace

Plan parse_sequence(const std::string& text, const Outline& outline) {
  Plan plan;
  plan.steps = Parser(outline).steps(text);
  return complete(plan, outline);
}

Plan complete(const Plan& plan, const Outline& outline) {
  const Printer printer(outline);
  Plan out = plan;
  if (std::ranges::all_of(plan.steps, [&](const PlanStep& s) { return printer.is_block(s); }))
    out.steps = with_other_layers(plan.steps, outline);
  return out;
}

std::string to_sequence(const Plan& plan, const Outline& outline) {
  const Printer printer(outline);
  std::vector<PlanStep> of_blocks;
  std::ranges::copy_if(plan.steps, std::back_inserter(of_blocks),
                       [&](const PlanStep& s) { return printer.is_block(s); });
  const bool understood = std::ranges::equal(with_other_layers(of_blocks, outline), plan.steps, same_but_region);
  std::string out;
  for (const PlanStep& step : understood ? of_blocks : plan.steps)
    out += (out.empty() ? "" : " ") + printer.token(step);
  return out;
}

}  // namespace tidemark
