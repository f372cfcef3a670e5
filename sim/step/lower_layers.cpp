#include <limits>
#include <optional>
#include <utility>

#include "tidemark/base/errors.hpp"
#include "tidemark/step/emitter.hpp"
#include "tidemark/step/layer_counts.hpp"
#include "tidemark/step/layer_lookahead.hpp"
#include "tidemark/step/layer_store.hpp"
#include "tidemark/step/lower.hpp"

namespace tidemark {
namespace {

/// Walks the plan once a step; each plan step writes one op: what it needs, what it makes, its kernel, what it lets go.
class LayerWalk {
 public:
  LayerWalk(const LayerGraph& graph, const Plan& plan, Convention convention, Step& out)
      : graph_(graph),
        plan_(plan),
        rotor_(convention == Convention::rotor),
        keeps_ends_(convention == Convention::dtr),
        counts_(count_layers(graph, convention)),
        lookahead_(graph, plan, counts_),
        emit_(out),
        store_(graph, counts_, emit_, plan.hold_boundaries) {}

  void run(int steps);

 private:
  static constexpr std::size_t not_there = static_cast<std::size_t>(-1);

  const LayerCost& cost(std::int32_t layer) const { return graph_.layers[static_cast<std::size_t>(layer)]; }
  const std::vector<std::int32_t>& inputs(std::int32_t layer) const {
    return counts_.inputs[static_cast<std::size_t>(layer)];
  }
  std::int32_t loss_holder() const { return counts_.layers(); }
  std::int32_t drop_holder() const { return counts_.layers(); }  // whole steps have no loss
  std::int32_t step_holder() const { return counts_.layers() + 1; }
  LayerPart part(const PlanStep& step) const { return part_of(cost(step.layer), step.ops); }
  bool lets_saved_go(const PlanStep& drop) const;
  Keep keep_of(const PlanStep& step) const;
  bool keeps_input(const PlanStep& step, Keep keep, std::int32_t value) const;
  bool is_end(std::int32_t value) const;
  std::vector<std::int32_t> readers_to_come(std::int32_t value) const;
  std::vector<std::int32_t> holders_of(std::int32_t value) const;
  std::string op_name(std::string_view kind, std::int32_t layer) const { return layer_op_name(graph_, kind, layer); }

  void begin(const std::string& name, std::int32_t layer, Phase phase, LayerWork work);
  void compute(std::vector<StorageId> touched, std::string_view workspace, std::int32_t layer, Bytes bytes);
  void plan_step(const PlanStep& step);
  void forward(const PlanStep& step);
  void attention_again(std::int32_t layer);
  void loss();
  void backward(const PlanStep& step);
  void drop(const PlanStep& step);
  void discard_input(std::int32_t layer);
  void discard_saved(std::int32_t layer);

  /// What a copy out took: what the layer saved, or an input that it kept.
  struct Moved {
    std::int32_t value = -1;  // the input's; -1: what the layer saved
    std::uint32_t copied = 0;
    std::size_t block = 0;     // Step::host
    StorageId device = no_id;  // still held, until somebody waits for the copy
  };
  void begin_copy(const PlanStep& step, std::string_view kind, Stream stream, Bytes bytes);
  void copy_input(const PlanStep& step);
  void copy_out(const PlanStep& step);
  void move_out(const PlanStep& step, std::int32_t value);
  void copy_in(const PlanStep& step);
  void bring_back(const PlanStep& step, const Moved& moved);
  void copy_wait(const PlanStep& step);
  std::vector<Moved>& moved_by(const PlanStep& step, std::string_view kind, std::string_view fault);
  void check_backward_order(std::int32_t layer, const std::string& name) const;

  const LayerGraph& graph_;
  const Plan& plan_;
  const bool rotor_;
  const bool keeps_ends_;  // dtr: rows that read nothing, and rows nobody reads, stay to the end
  const LayerCounts counts_;
  const LayerLookahead lookahead_;
  Emitter emit_;
  LayerStore store_;
  std::size_t position_ = 0;  // in the plan
  std::int16_t step_ = 0;
  bool step_has_ops_ = false;
  bool loss_done_ = false;
  std::vector<bool> backward_done_;                           // by layer
  std::vector<LayerPart> backward_so_far_;                    // by layer: `whole` when none of its parts has come
  std::vector<std::optional<std::vector<Moved>>> moved_out_;  // by layer: what is on the host
  std::vector<std::size_t> inputs_on_host_;                   // by layer: Step::host; not_there without a copy
  std::vector<std::int32_t> made_in_;                         // by value: the region whose run made it; -1 is none
};

void LayerWalk::run(int steps) {
  Step& out = emit_.step();
  out.steps = steps;
  out.layers = counts_.names;
  for (const LayerCost& layer : graph_.layers) out.model_flops += layer.forward_flops + layer.backward_flops;
  store_.start_step(true);
  for (int s = 0; s < steps; ++s) {
    step_ = static_cast<std::int16_t>(s);
    step_has_ops_ = loss_done_ = false;
    backward_done_.assign(graph_.layers.size(), false);
    backward_so_far_.assign(graph_.layers.size(), LayerPart::whole);
    made_in_.assign(graph_.layers.size() + 1, -1);
    moved_out_.assign(graph_.layers.size(), std::nullopt);
    inputs_on_host_.assign(graph_.layers.size(), not_there);
    for (position_ = 0; position_ < plan_.steps.size(); ++position_) {
      try {
        plan_step(plan_.steps[position_]);
      } catch (const InputError& error) {
        throw InputError("step " + std::to_string(position_ + 1) + " of the plan: " + error.message());
      }
    }
    for (std::int32_t layer = 0; layer < counts_.layers() && !graph_.is_whole_step; ++layer)
      if (!backward_done_[static_cast<std::size_t>(layer)])
        throw InputError("the plan ends without " + op_name("B", layer) + "; expected each backward once");
    store_.finish_step();
  }
  store_.finish();
}

void LayerWalk::plan_step(const PlanStep& step) {
  const bool of_layer = step.layer >= 0 && step.layer < counts_.layers();
  const bool last_boundary = graph_.is_chain && step.action == Action::discard_input && step.layer == counts_.layers();
  if (!of_layer && !last_boundary && step.action != Action::loss)
    throw InputError("there is no layer " + std::to_string(step.layer) + "; expected 0 to " +
                     std::to_string(counts_.layers() - 1));
  switch (step.action) {
    case Action::forward:
      return forward(step);
    case Action::recompute:
      return part(step) == LayerPart::attention ? attention_again(step.layer) : forward(step);
    case Action::loss:
      return loss();
    case Action::backward:
      return backward(step);
    case Action::drop:
      return drop(step);
    case Action::discard_input:
      return discard_input(step.layer);
    case Action::discard_saved:
      return discard_saved(step.layer);
    case Action::copy_out:
      return step.keep == Keep::input ? copy_input(step) : copy_out(step);
    case Action::copy_in:
      return step.keep == Keep::input ? copy_input(step) : copy_in(step);
    case Action::copy_wait:
      return copy_wait(step);
  }
}

/// Attention's bytes are not given apart, so they go and come with the rest. A layer that does not run again before its
/// backward is kept: all it has to keep is what it saved.
bool LayerWalk::lets_saved_go(const PlanStep& drop) const {
  return part(drop) != LayerPart::attention && lookahead_.saved_again(drop.layer, position_);
}

/// A layer that is dropped right after its forward pass has never saved anything.
Keep LayerWalk::keep_of(const PlanStep& step) const {
  if (graph_.is_whole_step) return Keep::none;
  if (step.keep != Keep::all || position_ + 1 == plan_.steps.size()) return step.keep;
  const PlanStep& next = plan_.steps[position_ + 1];
  const bool dropped = next.action == Action::drop && next.layer == step.layer && lets_saved_go(next);
  return dropped ? Keep::input : Keep::all;
}

/// Fn lets its input go and Fc keeps it: all there is to say of a chain. In a graph a layer inside a region may read
/// past it, and keeps that too if it will read it again before it is made again; what its own region makes is not kept.
bool LayerWalk::keeps_input(const PlanStep& step, Keep keep, std::int32_t value) const {
  if (keep == Keep::all) return true;
  if (graph_.is_chain) return keep == Keep::input;
  const bool own = step.region >= 0 && made_in_[static_cast<std::size_t>(value)] == step.region;
  return (keep == Keep::input && !own) || lookahead_.reads_again(step.layer, value, position_);
}

bool LayerWalk::is_end(std::int32_t value) const {
  return value > 0 && (counts_.is_sink(value) || graph_.layers[static_cast<std::size_t>(value) - 1].inputs.empty());
}

std::vector<std::int32_t> LayerWalk::readers_to_come(std::int32_t value) const {
  std::vector<std::int32_t> readers;
  for (const std::int32_t reader : counts_.readers[static_cast<std::size_t>(value)])
    if (lookahead_.reads_again(reader, value, position_)) readers.push_back(reader);
  if (counts_.is_sink(value) && lookahead_.loss_reads(value, position_)) readers.push_back(loss_holder());
  if (!graph_.is_whole_step) return readers;
  const bool dropped = lookahead_.drops(value, position_);
  if (dropped) readers.push_back(drop_holder());
  if (!dropped && keeps_ends_ && is_end(value)) readers.push_back(step_holder());
  return readers;
}

/// Who holds a value made now. In a chain its one reader does, whatever follows: Fc and Fn say when it lets go. In a
/// graph the readers that will come are found by looking ahead.
std::vector<std::int32_t> LayerWalk::holders_of(std::int32_t value) const {
  if (!graph_.is_chain) return readers_to_come(value);
  return {counts_.is_sink(value) ? loss_holder() : value};
}

void LayerWalk::begin(const std::string& name, std::int32_t layer, Phase phase, LayerWork work) {
  const auto& [flops, time] = work;
  if (flops.count > std::numeric_limits<std::int64_t>::max())
    throw InputError(name + " takes " + to_string(flops) + " FLOP; expected less than 2^63 in one op");
  StepOp op;
  op.layer = layer;
  op.phase = phase;
  op.step = step_;
  op.has_time = counts_.has_times;
  op.time = time;
  op.flops = static_cast<std::int64_t>(flops.count);
  const OpId id = emit_.begin_op(op, name);
  store_.acting(emit_.step().ops[id].name);
  if (!step_has_ops_ && step_ > 0) store_.start_step(false);
  step_has_ops_ = true;
}

void LayerWalk::compute(std::vector<StorageId> touched, std::string_view workspace, std::int32_t layer, Bytes bytes) {
  const StorageId id = emit_.alloc(workspace, bytes, Category::workspace, layer);
  touched.push_back(id);
  emit_.compute(touched);
  emit_.release(id);
}

void LayerWalk::forward(const PlanStep& step) {
  const std::int32_t layer = step.layer;
  const Keep keep = keep_of(step);
  const bool again = step.action == Action::recompute;
  if (!again && part(step) != LayerPart::whole)
    throw InputError(layer_label(graph_, layer) + " runs forward in parts; expected the whole layer");
  const std::string_view kind = keep == Keep::all ? "Fe" : keep == Keep::input ? "Fc" : "Fn";
  const std::string name = graph_.is_whole_step ? counts_.names[static_cast<std::size_t>(layer)]
                                                : layer_op_name(graph_, kind, layer, part(step));
  begin(name, layer, again ? Phase::recompute : Phase::forward, forward_work(cost(layer), part(step)));

  std::vector<StorageId> touched = {store_.parameters(layer)};
  for (const std::int32_t value : inputs(layer)) touched.push_back(store_.read(value, name));
  touched.push_back(keep == Keep::all ? store_.make_saved(layer, name)
                                      : store_.make_plain(layer + 1, holders_of(layer + 1), name));
  compute(std::move(touched), "workspace", layer, cost(layer).forward_workspace);

  made_in_[static_cast<std::size_t>(layer) + 1] = step.region;
  for (const std::int32_t value : inputs(layer)) {
    if (keeps_input(step, keep, value)) continue;
    if (rotor_ && !store_.has_plain(value))
      store_.free_saved(value - 1);
    else
      store_.let_go(layer, value, false);
  }
  store_.free_unheld(layer + 1);
}

void LayerWalk::attention_again(std::int32_t layer) {
  const std::string name = layer_op_name(graph_, "Fe", layer, LayerPart::attention);
  begin(name, layer, Phase::recompute, forward_work(cost(layer), LayerPart::attention));
  std::vector<StorageId> touched = {store_.parameters(layer)};
  for (const std::int32_t value : inputs(layer)) touched.push_back(store_.read(value, name));
  compute(std::move(touched), "workspace", layer, cost(layer).forward_workspace);
}

void LayerWalk::loss() {
  if (loss_done_) throw InputError("L runs twice; expected one loss step");
  loss_done_ = true;
  const std::int32_t last = counts_.layers() - 1;
  begin("L", last, Phase::loss, {{}, graph_.loss_time});
  std::vector<StorageId> touched;
  for (std::int32_t value = 1; value <= counts_.layers(); ++value)
    if (counts_.is_sink(value)) {
      touched.push_back(store_.read(value, "L"));
      touched.push_back(store_.add_to_gradient(value));
    }
  compute(std::move(touched), "loss_workspace", last, graph_.loss_workspace);
  for (std::int32_t value = 1; value <= counts_.layers(); ++value)
    if (counts_.is_sink(value)) store_.let_go(loss_holder(), value, false);
}

void LayerWalk::check_backward_order(std::int32_t layer, const std::string& name) const {
  const std::int32_t output = layer + 1;
  if (backward_done_[static_cast<std::size_t>(layer)])
    throw InputError(name + " runs twice; expected each backward once");
  if (counts_.is_sink(output) && !loss_done_)
    throw InputError(name + " needs the gradient of " + store_.value_label(output) + ", which L has not made yet");
  for (const std::int32_t reader : counts_.readers[static_cast<std::size_t>(output)])
    if (!backward_done_[static_cast<std::size_t>(reader)])
      throw InputError(name + " needs the gradient of " + store_.value_label(output) + ", which " +
                       op_name("B", reader) + " has not made yet");
}

/// A layer has one backward, with one time and one workspace: it runs when the last of its parts is asked for.
void LayerWalk::backward(const PlanStep& step) {
  const std::int32_t layer = step.layer;
  const LayerPart before = std::exchange(backward_so_far_[static_cast<std::size_t>(layer)], part(step));
  if (part(step) != LayerPart::whole && (before == LayerPart::whole || before == part(step))) return;
  const std::string name = op_name("B", layer);
  check_backward_order(layer, name);
  backward_done_[static_cast<std::size_t>(layer)] = true;
  begin(name, layer, Phase::backward, {cost(layer).backward_flops, cost(layer).backward_time});

  std::vector<StorageId> touched = {store_.parameters(layer), store_.gradient(layer + 1),
                                    store_.read_saved(layer, name)};
  for (const std::int32_t value : inputs(layer)) touched.push_back(store_.read(value, name));
  for (const std::int32_t value : inputs(layer)) touched.push_back(store_.add_to_gradient(value));
  touched.push_back(store_.make_parameter_gradient(layer));
  compute(std::move(touched), "workspace", layer, cost(layer).backward_workspace);

  for (const std::int32_t value : inputs(layer)) store_.let_go(layer, value, true);
  store_.free_gradient(layer + 1);
  store_.free_saved(layer);
}

/// What a layer saved goes; its output stays for those who will still read it. The value of a row of a whole step goes.
void LayerWalk::drop(const PlanStep& step) {
  if (graph_.is_whole_step) {
    const std::int32_t value = step.layer + 1;
    if (!store_.has_plain(value)) throw InputError(store_.value_label(value) + " is not there to drop");
    store_.acting(emit_.step().names.id("drop " + counts_.names[static_cast<std::size_t>(step.layer)]));
    return store_.let_go(drop_holder(), value, false);
  }
  const bool never_saved = position_ > 0 && plan_.steps[position_ - 1].action == Action::forward &&
                           plan_.steps[position_ - 1].layer == step.layer;
  if (never_saved || !lets_saved_go(step)) return;
  const std::int32_t output = step.layer + 1;
  discard_saved(step.layer);
  std::vector<std::int32_t> readers = readers_to_come(output);
  if (!store_.has_plain(output) && !readers.empty()) store_.make_plain(output, std::move(readers), "drop");
}

void LayerWalk::discard_input(std::int32_t layer) {
  const bool last_boundary = layer == counts_.layers();
  store_.acting(emit_.step().names.id(last_boundary ? "Dx" + std::to_string(layer) : op_name("Dx", layer)));
  for (const std::int32_t value : last_boundary ? std::vector<std::int32_t>{layer} : inputs(layer)) {
    if (!store_.has_plain(value)) throw InputError(store_.value_label(value) + " is not there to discard");
    store_.let_go(last_boundary ? loss_holder() : layer, value, false);
  }
}

void LayerWalk::discard_saved(std::int32_t layer) {
  if (!store_.has_saved(layer))
    throw InputError("the saved activations of " + layer_label(graph_, layer) + " are not there to drop");
  store_.acting(emit_.step().names.id(op_name("Dxbar", graph_.is_chain ? layer + 1 : layer)));
  store_.free_saved(layer);
}

void LayerWalk::begin_copy(const PlanStep& step, std::string_view kind, Stream stream, Bytes bytes) {
  const std::string name = op_name(kind, step.layer);
  if (part(step) != LayerPart::whole)
    throw InputError(name + " moves a part of a layer, whose bytes are not given apart; expected the whole layer");
  begin(name, step.layer, Phase::offload, {});
  StepOp& op = emit_.step().ops.back();
  op.stream = stream;
  op.has_time = false;
  op.moved = bytes;
}

/// Checkpoints of two levels (Herrmann and Pallez 2020): the layer's input is copied, nothing runs meanwhile, and the
/// copy on the host stays, to be read again.
void LayerWalk::copy_input(const PlanStep& step) {
  const std::int32_t value = step.layer;
  const bool out = step.action == Action::copy_out;
  const std::string name = op_name(out ? "Outx" : "Inx", step.layer);
  if (!graph_.is_chain) throw InputError(name + " copies an input, which has a meaning for chains only");
  std::size_t& block = inputs_on_host_[static_cast<std::size_t>(value)];
  if (!out && block == not_there)
    throw InputError(name + " brings back what is not on the host; expected " + op_name("Outx", step.layer) +
                     " before it");
  begin_copy(step, out ? "Outx" : "Inx", out ? Stream::copy_out : Stream::copy_in,
             counts_.plain[static_cast<std::size_t>(value)]);
  const StorageId id = out ? store_.read(value, name) : store_.make_plain(value, holders_of(value), name);
  emit_.copy_and_wait({id});
  const auto op = static_cast<OpId>(emit_.step().ops.size() - 1);
  if (!out) {
    emit_.step().host[block].back = op;
    return;
  }
  block = emit_.step().host.size();
  const StepStorage& storage = emit_.step().storages[id];
  emit_.step().host.push_back({storage.name, storage.bytes, op, no_id});
}

/// What a layer saved goes to the host, its output with it; of one that runs again, the inputs that it alone will read.
/// The model's own input is the batch, and stays.
void LayerWalk::copy_out(const PlanStep& step) {
  const std::string name = op_name("Out", step.layer);
  std::vector<std::int32_t> kept;
  for (const std::int32_t value : inputs(step.layer))
    if (value > 0 && store_.is_only_for(step.layer, value)) kept.push_back(value);
  if (store_.has_saved(step.layer)) kept.clear();
  if (kept.empty()) store_.read_saved(step.layer, name);
  moved_out_[static_cast<std::size_t>(step.layer)].emplace();
  if (kept.empty()) return move_out(step, -1);
  for (const std::int32_t value : kept) move_out(step, value);
}

/// The device's storage is free when the copy has ended (M9), or when computation has waited for that.
void LayerWalk::move_out(const PlanStep& step, std::int32_t value) {
  const std::string name = op_name("Out", step.layer);
  const StorageId id = value < 0 ? store_.read_saved(step.layer, name) : store_.read(value, name);
  const StepStorage storage = emit_.step().storages[id];
  if (storage.bytes < plan_.copies.min_size) return;
  begin_copy(step, "Out", Stream::copy_out, storage.bytes);
  if (value < 0)
    store_.take_saved(step.layer);
  else
    store_.take_plain(value);
  emit_.copy({id});
  Moved moved{value, emit_.record(Stream::copy_out), emit_.step().host.size(), no_id};
  emit_.step().host.push_back({storage.name, storage.bytes, static_cast<OpId>(emit_.step().ops.size() - 1), no_id});
  emit_.read_until(id, Stream::copy_out, moved.copied);
  if (plan_.copies.free_at_wait)
    moved.device = id;
  else
    emit_.release(id);
  moved_out_[static_cast<std::size_t>(step.layer)]->push_back(moved);
}

std::vector<LayerWalk::Moved>& LayerWalk::moved_by(const PlanStep& step, std::string_view kind,
                                                   std::string_view fault) {
  auto& moved = moved_out_[static_cast<std::size_t>(step.layer)];
  if (!moved)
    throw InputError(op_name(kind, step.layer) + std::string(fault) + "; expected " + op_name("Out", step.layer) +
                     " before it");
  return *moved;
}

void LayerWalk::copy_wait(const PlanStep& step) {
  for (Moved& moved : moved_by(step, "Wait", " waits for what is not copied out")) {
    if (moved.device == no_id) continue;
    emit_.wait(moved.copied, Stream::compute);
    emit_.release(std::exchange(moved.device, no_id));
  }
}

void LayerWalk::copy_in(const PlanStep& step) {
  for (const Moved& moved : moved_by(step, "In", " brings back what is not on the host")) bring_back(step, moved);
  moved_out_[static_cast<std::size_t>(step.layer)].reset();
}

/// Into a storage of its own, made when the host asks for it: how long before it is read is the prefetch. What nobody
/// has waited for is still on the device.
void LayerWalk::bring_back(const PlanStep& step, const Moved& moved) {
  const std::string name = op_name("In", step.layer);
  HostBlock& block = emit_.step().host[moved.block];
  if (moved.device != no_id) {
    if (moved.value < 0)
      store_.put_saved(step.layer, moved.device);
    else
      store_.put_plain(moved.value, moved.device, step.layer);
    block.back = static_cast<OpId>(emit_.step().ops.size() - 1);
    return;
  }
  begin_copy(step, "In", Stream::copy_in, block.bytes);
  const StorageId id =
      moved.value < 0 ? store_.make_saved(step.layer, name) : store_.make_plain(moved.value, {step.layer}, name);
  emit_.wait(moved.copied, Stream::copy_in);
  emit_.copy({id});
  emit_.written_at(id, Stream::copy_in, emit_.record(Stream::copy_in));
  block.back = static_cast<OpId>(emit_.step().ops.size() - 1);
}

}  // namespace

Step lower(const LayerGraph& graph, const Plan& plan, Convention convention, int steps) {
  Step out;
  out.warnings = plan.warnings;
  LayerWalk(graph, plan, convention, out).run(steps);
  return out;
}

}  // namespace tidemark
