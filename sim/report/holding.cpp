#include "tidemark/report/holding.hpp"

#include "tidemark/report/moment.hpp"

namespace tidemark {
namespace {

/// A layer known by its number alone needs the word.
std::string layer_text(std::string_view layer) {
  const bool number = layer.find_first_not_of("0123456789") == std::string::npos;
  return number && !layer.empty() ? "layer " + std::string(layer) : std::string(layer);
}

/// The op's name where that begins with its layer's ("layers.3.mlp.gelu"); else the layer, since "B3" says no more.
std::string work_name(const Step& step, const StepOp& op) {
  const std::string& name = step.names[op.name];
  const std::string_view layer = layer_name(step, op.layer);
  return name.starts_with(layer) ? name : layer_text(layer);
}

std::string layer_or_op(const Step& step, const StepOp& op) {
  return op.layer >= 0 ? layer_text(layer_name(step, op.layer)) : step.names[op.name];
}

/// A gradient on its way from one op's backward to the next.
bool is_passed(const Step& step, const Timeline& timeline, const PeakStorage& s) {
  const Category category = step.storages[s.storage].category;
  const OpId made_by = timeline.events[s.birth_event].op();
  return category == Category::gradient || category == Category::autograd_detail ||
         (made_by != no_id && step.ops[made_by].phase == Phase::backward);
}

HoldReason next_use(const Step& step, const Timeline& timeline, const PeakStorage& s) {
  if (step.storages[s.storage].category == Category::gradient && step.ops[s.last_reader].phase == Phase::optimizer)
    return {Hold::gradient_until_optimizer};
  switch (step.ops[s.next_reader].phase) {
    case Phase::backward:
      return {is_passed(step, timeline, s) ? Hold::passed : Hold::saved, s.next_reader};
    case Phase::recompute:
      return {Hold::recompute_input, s.next_reader};
    case Phase::optimizer:
      return {Hold::optimizer_reads};
    default:
      return {Hold::next_reader, s.next_reader};
  }
}

}  // namespace

std::string phase_of_work(Phase phase, const std::string& op, const std::string& layer) {
  const std::string what(to_string(phase));
  if (op.starts_with(what) || phase == Phase::initial) return op;  // "loss", "optimizer.sgd"
  if (op.starts_with(layer)) return what + " of " + op;
  return what + " of " + layer_text(layer) + " (" + op + ")";
}

HoldReason hold_reason(const Step& step, const Timeline& timeline, const PeakStorage& s, OpId now) {
  const Category category = step.storages[s.storage].category;
  if (category == Category::parameter) return {Hold::parameter};
  if (category == Category::optimizer_state) return {Hold::optimizer_state};
  if (s.next_reader != no_id) return next_use(step, timeline, s);
  const OpId freed_in = s.death_event ? timeline.events[*s.death_event].op() : no_id;
  if (s.read_at_peak && freed_in == now) return {Hold::running_reader};
  if (category == Category::input) return {Hold::input};
  if (category == Category::gradient) return {Hold::gradient_kept};
  if (freed_in != no_id) return {Hold::until_op, freed_in};
  return {Hold::to_the_end};
}

std::string to_text(const Step& step, const HoldReason& reason) {
  const HoldWords& words = hold_words[static_cast<std::size_t>(reason.hold)];
  const std::string text(words.text);
  if (words.subject == HoldSubject::none) return text;
  const StepOp& op = step.ops[reason.op];
  switch (words.subject) {
    case HoldSubject::work:
      return text + work_name(step, op);
    case HoldSubject::layer:
      return text + layer_or_op(step, op);
    default:
      return text + phase_of_work(op.phase, step.names[op.name], std::string(layer_name(step, op.layer)));
  }
}

std::string held_by(const Step& step, const Timeline& timeline, const PeakStorage& storage) {
  return to_text(step, hold_reason(step, timeline, storage, peak_op(timeline)));
}

}  // namespace tidemark
