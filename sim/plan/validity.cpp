#include "tidemark/plan/validity.hpp"

#include <algorithm>
#include <set>

#include "tidemark/base/errors.hpp"
#include "tidemark/plan/sequence.hpp"

namespace tidemark {
namespace {

/// What is known of an op while the plan is walked.
struct OpState {
  bool ran = false;
  bool saved = false;   // its node has what backward needs
  bool cached = false;  // dropped on its own: its results stay, so it need not run again
  bool away = false;    // saved, but on the host
  bool backward = false;
};

/// Layers that read a layer's output, and whether it is there on its own (`plain`, rotor's x). As part of what the
/// layer saved (xbar) it is there while the layer's ops are saved.
struct OutputState {
  std::vector<std::int32_t> readers;
  bool plain = false;
};

class Walk {
 public:
  Walk(const Plan& plan, const Outline& outline);
  void run();

 private:
  [[noreturn]] void refuse(const std::string& why) const;
  std::string name(std::int32_t layer) const { return "'" + outline_.layers[index(layer)].name + "'"; }
  static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }
  std::vector<OpState>& ops(std::int32_t layer) { return ops_[index(layer)]; }
  std::vector<std::int32_t> ops_of(const PlanStep& step) const;
  bool is_loss(std::int32_t layer) const {
    return !outline_.layers[index(layer)].is_block && outline_.layers[index(layer)].name == "loss";
  }

  void run(const PlanStep& step);
  void run_row(const PlanStep& step);
  void forward(const PlanStep& step);
  void recompute(const PlanStep& step);
  void loss();
  void backward(const PlanStep& step);
  void copy(const PlanStep& step);
  void give_up_inputs(std::int32_t layer);
  void discard_input(std::int32_t layer);
  void copy_input(const PlanStep& step);
  void require_inputs(std::int32_t layer);
  bool output_is_there(std::int32_t layer);

  const Plan& plan_;
  const Outline& outline_;
  std::vector<std::vector<OpState>> ops_;                 // by layer, by op
  std::vector<std::vector<std::vector<OpRef>>> readers_;  // by layer, by op: ops that read it
  std::vector<std::vector<std::int32_t>> reads_;          // by layer: other layers
  std::vector<OutputState> outputs_;                      // by layer
  std::vector<std::int32_t> regions_;                     // by layer: that its forward step names
  enum class Input : std::uint8_t { read, kept, away };   // kept: for when the layer runs again; away: on the host
  std::vector<Input> inputs_;                             // by layer
  std::vector<bool> inputs_on_host_;                      // by layer, of a chain
  bool model_input_ = true;                               // of a chain
  bool loss_done_ = false;
  std::size_t position_ = 0;
};

Walk::Walk(const Plan& plan, const Outline& outline)
    : plan_(plan),
      outline_(outline),
      reads_(outline.layers.size()),
      outputs_(outline.layers.size()),
      regions_(outline.layers.size(), -1),
      inputs_(outline.layers.size(), Input::read),
      inputs_on_host_(outline.layers.size(), false) {
  for (const OutlineLayer& layer : outline.layers) {
    ops_.emplace_back(layer.ops.size());
    readers_.emplace_back(layer.ops.size());
  }
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(outline.layers.size()); ++i) {
    std::set<std::int32_t> reads;
    const auto& layer = outline.layers[index(i)];
    for (std::int32_t k = 0; k < static_cast<std::int32_t>(layer.ops.size()); ++k)
      for (const OpRef& input : layer.ops[index(k)].inputs) {
        readers_[index(input.layer)][index(input.op)].push_back({i, k});
        if (input.layer != i) reads.insert(input.layer);
      }
    reads_[index(i)].assign(reads.begin(), reads.end());
    for (const std::int32_t read : reads) outputs_[index(read)].readers.push_back(i);
  }
}

void Walk::refuse(const std::string& why) const {
  std::string token;
  if (position_ < plan_.steps.size()) {
    const PlanStep& step = plan_.steps[position_];
    const bool of_layer = step.layer >= 0 && index(step.layer) < outline_.layers.size();
    if (of_layer || step.action == Action::loss) {
      Plan one;
      one.steps.push_back(step);
      token = ", " + to_sequence(one, outline_) + ",";
    }
  }
  throw InputError("step " + std::to_string(position_ + 1) + " of the plan" + token + " " + why);
}

std::vector<std::int32_t> Walk::ops_of(const PlanStep& step) const {
  const auto count = static_cast<std::int32_t>(outline_.layers[index(step.layer)].ops.size());
  std::vector<std::int32_t> out = step.ops;
  if (out.empty())
    for (std::int32_t k = 0; k < count; ++k) out.push_back(k);
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i] < 0 || out[i] >= count)
      refuse("names op " + std::to_string(out[i]) + "; " + name(step.layer) + " has ops 0 to " +
             std::to_string(count - 1));
    if (i > 0 && out[i] <= out[i - 1]) refuse("must name ops once and in ascending order");
  }
  return out;
}

bool Walk::output_is_there(std::int32_t layer) {
  const OutputState& output = outputs_[index(layer)];
  if (!outline_.layers[index(layer)].is_block || output.readers.size() > 1 || output.plain) return true;
  return !ops(layer).empty() && ops(layer).back().saved;
}

void Walk::require_inputs(std::int32_t layer) {
  if (outline_.is_chain && layer == 0 && !model_input_) refuse("needs the model's input, which was given up");
  for (const std::int32_t read : reads_[index(layer)]) {
    if (!ops(read).back().ran) refuse("reads " + name(read) + ", which has not run");
    if (!output_is_there(read)) refuse("needs the output of " + name(read) + ", which was given up");
  }
}

void Walk::give_up_inputs(std::int32_t layer) {
  if (outline_.is_chain && layer == 0) model_input_ = false;
  for (const std::int32_t read : reads_[index(layer)]) outputs_[index(read)].plain = false;
}

void Walk::discard_input(std::int32_t layer) {
  const auto last = static_cast<std::int32_t>(outline_.layers.size()) - 1;
  if (!outline_.is_chain) refuse("discards an input, which has a meaning for chains only");
  if (layer == 0) {
    if (!model_input_) refuse("discards what is not there");
    model_input_ = false;
    return;
  }
  if (layer > last + 1) refuse("names layer " + std::to_string(layer) + " of " + std::to_string(last + 1));
  if (!outputs_[index(layer - 1)].plain) refuse("discards what is not there");
  outputs_[index(layer - 1)].plain = false;
}

void Walk::copy_input(const PlanStep& step) {
  if (!outline_.is_chain) refuse("copies an input, which has a meaning for chains only");
  if (step.action == Action::copy_out) {
    require_inputs(step.layer);
    inputs_on_host_[index(step.layer)] = true;
    return;
  }
  if (!inputs_on_host_[index(step.layer)]) refuse("brings back what is not on the host");
  if (step.layer == 0)
    model_input_ = true;
  else
    outputs_[index(step.layer - 1)].plain = true;
}

void Walk::forward(const PlanStep& step) {
  if (is_loss(step.layer)) refuse("runs the loss as a layer; expected the loss step");
  if (loss_done_) refuse("runs forward after the loss; expected recompute");
  regions_[index(step.layer)] = step.region;
  const std::vector<std::int32_t> run = ops_of(step);
  require_inputs(step.layer);
  for (const std::int32_t k : run) {
    OpState& op = ops(step.layer)[index(k)];
    if (op.ran) refuse("runs forward a second time; expected recompute");
    for (const OpRef& input : outline_.layers[index(step.layer)].ops[index(k)].inputs)
      if (!ops_[index(input.layer)][index(input.op)].ran) refuse("reads " + name(input.layer) + ", which has not run");
    op.ran = true;
    op.saved = step.keep == Keep::all;
  }
  if (step.keep != Keep::all) outputs_[index(step.layer)].plain = true;
  if (step.keep == Keep::none) give_up_inputs(step.layer);
  if (step.keep == Keep::input) inputs_[index(step.layer)] = Input::kept;
}

void Walk::recompute(const PlanStep& step) {
  const std::vector<std::int32_t> run = ops_of(step);
  require_inputs(step.layer);
  if (inputs_[index(step.layer)] == Input::away) refuse("needs its input, which is on the host");
  for (const std::int32_t k : run) {
    OpState& op = ops(step.layer)[index(k)];
    if (!op.ran) refuse("runs again what has not run forward");
    if (op.away) refuse("runs again what it saved already, which is on the host");
    if (plan_.checkpointing.kind != Checkpointing::Kind::direct && regions_[index(step.layer)] < 0)
      refuse("runs again outside of any region; torch's checkpointing knows regions only");
    if (op.backward) refuse("runs again what has run backward");
    op.saved = op.saved || step.keep == Keep::all;
  }
  if (step.keep != Keep::all) outputs_[index(step.layer)].plain = true;
  if (step.keep == Keep::none) give_up_inputs(step.layer);
}

void Walk::loss() {
  if (loss_done_) refuse("is a second loss");
  loss_done_ = true;
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(ops_.size()); ++i) {
    if (is_loss(i))
      for (OpState& op : ops(i)) op.ran = op.saved = true;
    if (std::ranges::any_of(ops(i), [](const OpState& op) { return !op.ran; }))
      refuse("stands before " + name(i) + " has run forward");
    if (!outputs_[index(i)].readers.empty()) continue;
    if (outline_.is_chain && !outputs_[index(i)].plain && !ops(i).back().saved)
      refuse("needs the output of " + name(i) + ", which was given up");
    outputs_[index(i)].plain = false;
  }
}

void Walk::backward(const PlanStep& step) {
  if (!loss_done_) refuse("runs backward before the loss");
  require_inputs(step.layer);
  std::vector<std::int32_t> reversed = ops_of(step);
  std::ranges::reverse(reversed);
  for (const std::int32_t k : reversed) {
    OpState& op = ops(step.layer)[index(k)];
    const std::string what = "op '" + outline_.layers[index(step.layer)].ops[index(k)].name + "'";
    if (op.backward) refuse("runs " + what + " backward a second time");
    for (const OpRef& reader : readers_[index(step.layer)][index(k)])
      if (!ops_[index(reader.layer)][index(reader.op)].backward)
        refuse("runs " + what + " backward before " + name(reader.layer) + ", which reads it");
    if (op.away) refuse("needs what " + what + " saved, which is on the host");
    if (!op.saved && !op.cached) refuse("needs what " + what + " saved, which was given up and not run again");
    op.backward = true;
    op.saved = false;
  }
  if (std::ranges::any_of(ops(step.layer), [](const OpState& op) { return !op.backward; })) return;
  outputs_[index(step.layer)].plain = false;
  for (const std::int32_t read : reads_[index(step.layer)]) outputs_[index(read)].plain = false;
}

/// Of a layer graph the lowering says the same, of single values. Ops of which nothing is there to move are passed
/// over, but something must be.
void Walk::copy(const PlanStep& step) {
  const std::vector<std::int32_t> moved = ops_of(step);
  if (outline_.saves_as_one) return;
  Input& input = inputs_[index(step.layer)];
  bool any = false;
  for (const std::int32_t k : moved) {
    OpState& op = ops(step.layer)[index(k)];
    if (step.action == Action::copy_out ? !op.saved : !op.away) continue;
    any = true;
    if (step.action == Action::copy_wait) continue;
    op.away = step.action == Action::copy_out;
    op.saved = !op.away;
  }
  const Input from = step.action == Action::copy_out ? Input::kept : Input::away;
  if (input == from) {
    any = true;
    if (step.action != Action::copy_wait) input = from == Input::kept ? Input::away : Input::kept;
  }
  // The output itself stays for its readers.
  if (any && step.action == Action::copy_out) outputs_[index(step.layer)].plain = true;
  if (any) return;
  if (step.action == Action::copy_out) refuse("copies out what is not there");
  refuse(step.action == Action::copy_in ? "brings back what is not on the host" : "waits for what is not copied out");
}

void Walk::run(const PlanStep& step) {
  if (step.action == Action::loss) return loss();
  if (step.action == Action::discard_input) return discard_input(step.layer);
  if (step.layer < 0 || index(step.layer) >= outline_.layers.size())
    refuse("names layer " + std::to_string(step.layer) + " of " + std::to_string(outline_.layers.size()));
  switch (step.action) {
    case Action::forward:
      return forward(step);
    case Action::recompute:
      return recompute(step);
    case Action::backward:
      return backward(step);
    case Action::drop:
    case Action::discard_saved:
      for (const std::int32_t k : ops_of(step)) {
        OpState& op = ops(step.layer)[index(k)];
        if (!op.saved) refuse("gives up what is not there");
        op.saved = false;
        op.cached = step.action == Action::drop;
      }
      // What is dropped is what backward needs; the output itself stays for its readers.
      if (step.action == Action::drop) outputs_[index(step.layer)].plain = true;
      return;
    case Action::loss:
    case Action::discard_input:
      return;
    case Action::copy_out:
    case Action::copy_in:
    case Action::copy_wait:
      return step.keep == Keep::input ? copy_input(step) : copy(step);
  }
}

void Walk::run_row(const PlanStep& step) {
  if (step.action != Action::forward && step.action != Action::recompute && step.action != Action::drop)
    refuse("has no meaning where the rows are the whole step; expected forward, recompute or drop");
  if (step.layer < 0 || index(step.layer) >= outline_.layers.size())
    refuse("names layer " + std::to_string(step.layer) + " of " + std::to_string(outline_.layers.size()));
  OpState& row = ops(step.layer).front();
  if (step.action == Action::forward && row.ran) refuse("runs forward a second time; expected recompute");
  if (step.action != Action::forward && !row.ran) refuse("stands before its row has run forward");
  for (const std::int32_t read : reads_[index(step.layer)])
    if (!ops(read).front().ran) refuse("reads " + name(read) + ", which has not run");
  row.ran = true;
}

void Walk::run() {
  for (; position_ < plan_.steps.size(); ++position_)
    outline_.is_whole_step ? run_row(plan_.steps[position_]) : run(plan_.steps[position_]);
  if (outline_.is_whole_step) {
    for (std::size_t i = 0; i < ops_.size(); ++i)
      if (!ops_[i].front().ran) throw InputError("the plan ends before '" + outline_.layers[i].name + "' has run");
    return;
  }
  for (std::size_t i = 0; i < ops_.size(); ++i)
    if (std::ranges::any_of(ops_[i], [](const OpState& op) { return !op.backward; }))
      throw InputError("the plan ends before '" + outline_.layers[i].name + "' has run backward");
}

}  // namespace

void check_plan(const Plan& plan, const Outline& outline) { Walk(plan, outline).run(); }

}  // namespace tidemark
