/// The seed's NumPy program as Python runs it: reference counts, no autograd.
///
///   def step(x, grad_output, params):                             # between steps the caller does: del g, grads
///       out, saved = model_forward_checkpointed(x, params, k)     # or out, activations = model_forward(x, params)
///       del out                                                   # unless loop.logits_held
///       return model_backward_checkpointed(grad_output, saved, params, k)
///
/// An expression's temporary dies right after the call that read it; a variable's old value dies when the new one is
/// there; a function's variables die at its return, in the order of their first use; a list's items from the last to
/// the first. NumPy's own reuse of large temporaries (from 256 KiB on, `x @ w + b` adds in place) is not followed.
///
/// One layer from x (B bytes) to the hidden tensor (H) and back; a call's frees stand behind it. Where two calls of
/// one layer differ, the first form is that of the segment's last layer.
///
///   layer_forward, live above its start      |  one turn of model_backward
///   fc1.matmul  +H            H              |  fc1.matmul  +H
///   fc1.bias    +H -product   H              |  fc1.bias    +H       -product  -(the turn before's h_pre)
///   relu        +H -h_pre     H              |  relu        +H       -(its h)
///   fc2.matmul  +B            H + B          |  gh          +H       -(its gh)
///   fc2.bias    +B -product   H + B          |  gw2, gb2    stay
///               -h            B              |  mask        +H / bytes an element
///               -x            B, or 0 where  |  g_pre       +H       -mask     -(its g_pre)
///        x is no kept boundary: net B - B    |  gx          +B
///                                            |  gw1, gb1    stay     -(its gx; not the caller's g)
///
/// model_backward's return: -h_pre -h -gh -g_pre. Back in the caller: -g, the gradient that came in, so it has lived
/// through the whole segment. A segment's rebuilt activations die (last to first) when the next segment has been
/// rebuilt, so two segments' boundaries are live then.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "tidemark/base/errors.hpp"
#include "tidemark/step/emitter.hpp"
#include "tidemark/step/lower.hpp"

namespace tidemark {
namespace {

constexpr StorageId none = no_id;

struct LayerParameters {
  StorageId w1 = none, b1 = none, w2 = none, b2 = none;
};

/// What model_forward keeps: its input and every layer's output; the variant also keeps each pre-activation.
struct Activations {
  std::vector<StorageId> boundaries, pre_activations;
};

class ReferenceLowering {
 public:
  ReferenceLowering(const MlpSpec& spec, const Training& training, std::int64_t segment)
      : spec_(spec), training_(training), segment_(segment), emit_(step_) {
    const std::int64_t item = bytes_per_element(training.dtypes.compute);
    boundary_ = sized({spec.rows, spec.width}, item, "layers.0.out");
    hidden_ = sized({spec.rows, spec.hidden}, item, "layers.0.h");
    mask_ = sized({spec.rows, spec.hidden}, 1, "layers.0.mask");
    weight_ = sized({spec.width, spec.hidden}, item, "layers.0.w1");
    bias1_ = sized({spec.hidden}, item, "layers.0.b1");
    bias2_ = sized({spec.width}, item, "layers.0.b2");
    const auto elements = checked_product(2 * spec.rows, spec.width);
    const auto flops = elements ? checked_product(*elements, spec.hidden) : std::nullopt;
    if (!flops) throw InputError("the FLOPs of 'layers.0.fc1.matmul' pass 2^63");
    product_flops_ = *flops;
  }

  Step lower() {
    emit_inputs();
    for (number_ = 0; number_ < training_.loop.steps; ++number_) {
      if (number_ > 0) delete_results();
      segment_ > 0 ? checkpointed_step() : plain_step();
    }
    for (const StorageId id : results_) step_.storages[id].outlives_step = true;
    step_.steps = training_.loop.steps;
    step_.parameters = spec_.layers * (2 * spec_.width * spec_.hidden + spec_.hidden + spec_.width);
    step_.model_flops = Int128{6} * spec_.layers * Flops{product_flops_};
    return std::move(step_);
  }

 private:
  static Bytes sized(Shape shape, std::int64_t item, const char* name) {
    shape.push_back(item);
    const std::optional<std::int64_t> bytes = element_count(shape);
    if (!bytes) throw InputError("the size of '" + std::string(name) + "' passes 2^63 bytes");
    return Bytes{*bytes};
  }

  std::string name(std::int64_t layer, const char* part) const {
    return "layers." + std::to_string(layer) + "." + part;
  }

  void emit_inputs() {
    const auto input = [&](const std::string& tensor, Bytes bytes, Category category, std::int32_t layer) {
      const StorageId id = emit_.initial(tensor, bytes, category, layer);
      step_.storages[id].outlives_step = true;
      return id;
    };
    for (std::int64_t i = 0; i < spec_.layers; ++i) {
      const auto layer = static_cast<std::int32_t>(i);
      step_.layers.push_back("layers." + std::to_string(i));
      parameters_.push_back({input(name(i, "w1"), weight_, Category::parameter, layer),
                             input(name(i, "b1"), bias1_, Category::parameter, layer),
                             input(name(i, "w2"), weight_, Category::parameter, layer),
                             input(name(i, "b2"), bias2_, Category::parameter, layer)});
    }
    x_ = input("x", boundary_, Category::input, -1);
    grad_output_ = input("grad_output", boundary_, Category::input, -1);
  }

  // ---- Python

  /// variable = value: the old value goes once the new one is there.
  void rebind(StorageId& variable, StorageId value) {
    if (variable != none) emit_.release(variable);
    variable = value;
  }
  StorageId borrowed(StorageId id) {
    emit_.hold(id);
    return id;
  }
  void del(StorageId& variable) { rebind(variable, none); }
  /// A list's items go from the last to the first.
  void del(std::vector<StorageId>& list) {
    for (std::size_t i = list.size(); i-- > 0;) emit_.release(list[i]);
    list.clear();
  }

  // ---- NumPy: one call, one op, one result

  struct Call {
    std::int64_t layer;
    const char* op;
    Phase phase;
    OpKind kind;
    bool is_backward = false;
  };
  struct Work {
    std::int64_t matmul = 0, other = 0;
  };

  StorageId call(const Call& at, const char* result, Bytes bytes, Category category, Work work,
                 std::vector<StorageId> reads) {
    StepOp op;
    op.layer = static_cast<std::int32_t>(at.layer);
    op.phase = at.phase;
    op.dtype = training_.dtypes.compute;
    op.step = static_cast<std::int16_t>(number_);
    op.flops = work.matmul;
    op.other_flops = work.other;
    op.kind = at.kind;
    op.is_backward = at.is_backward;
    op.moved = bytes;
    for (const StorageId id : reads) {
      const std::optional<std::int64_t> moved = checked_sum(op.moved.count, step_.storages[id].bytes.count);
      if (!moved) throw InputError("the bytes moved by '" + name(at.layer, at.op) + "' pass 2^63");
      op.moved = Bytes{*moved};
    }
    emit_.begin_op(op, name(at.layer, at.op));
    const StorageId out = emit_.alloc(name(at.layer, result), bytes, category, op.layer);
    reads.push_back(out);
    emit_.compute(reads);
    return out;
  }

  StorageId matmul(const Call& at, const char* result, Bytes bytes, StorageId a, StorageId b,
                   Category category = Category::temporary) {
    return call(at, result, bytes, category, {product_flops_, 0}, {a, b});
  }

  // ---- the program

  /// x @ w + b
  StorageId fc1(std::int64_t i, Phase phase, StorageId x) {
    const LayerParameters& p = parameters_[static_cast<std::size_t>(i)];
    const StorageId product = matmul({i, "fc1.matmul", phase, OpKind::matmul}, "fc1.product", hidden_, x, p.w1);
    const StorageId sum = call({i, "fc1.bias", phase, OpKind::add}, "h_pre", hidden_, Category::temporary,
                               {0, elements(hidden_)}, {product, p.b1});
    emit_.release(product);
    return sum;
  }
  StorageId fc2(std::int64_t i, Phase phase, StorageId h) {
    const LayerParameters& p = parameters_[static_cast<std::size_t>(i)];
    const StorageId product = matmul({i, "fc2.matmul", phase, OpKind::matmul}, "fc2.product", boundary_, h, p.w2);
    const StorageId sum = call({i, "fc2.bias", phase, OpKind::add}, "out", boundary_, Category::activation,
                               {0, elements(boundary_)}, {product, p.b2});
    emit_.release(product);
    return sum;
  }
  StorageId relu(std::int64_t i, Phase phase, StorageId h_pre) {
    return call({i, "relu", phase, OpKind::relu}, "h", hidden_, Category::temporary, {0, elements(hidden_)}, {h_pre});
  }
  std::int64_t elements(Bytes bytes) const { return bytes.count / bytes_per_element(training_.dtypes.compute); }

  /// layer_forward; the variant returns h_pre besides, into `kept`.
  StorageId layer_forward(std::int64_t i, Phase phase, StorageId x, std::vector<StorageId>* kept) {
    const StorageId h_pre = fc1(i, phase, x);
    const StorageId h = relu(i, phase, h_pre);
    if (kept)
      kept->push_back(h_pre);
    else
      emit_.release(h_pre);
    const StorageId out = fc2(i, phase, h);
    emit_.release(h);
    return out;
  }

  /// model_forward(x, params[begin:end])
  Activations model_forward(Phase phase, StorageId x, std::int64_t begin, std::int64_t end) {
    Activations kept;
    kept.boundaries.push_back(borrowed(x));
    for (std::int64_t i = begin; i < end; ++i)
      kept.boundaries.push_back(
          layer_forward(i, phase, kept.boundaries.back(), spec_.save_pre_activation ? &kept.pre_activations : nullptr));
    if (spec_.save_pre_activation)
      for (const StorageId id : kept.pre_activations) step_.storages[id].category = Category::activation;
    return kept;
  }

  /// model_backward(grad_output, activations, params[begin:end]): gives g, one hold of which is the caller's.
  StorageId model_backward(StorageId grad_output, const Activations& kept, std::int64_t begin, std::int64_t end) {
    StorageId g = borrowed(grad_output);
    StorageId h_pre = none, h = none, gh = none, g_pre = none, gx = none;
    for (std::int64_t i = end - 1; i >= begin; --i) {
      const auto in_segment = static_cast<std::size_t>(i - begin);
      const StorageId x_in = kept.boundaries[in_segment];
      const LayerParameters& p = parameters_[static_cast<std::size_t>(i)];
      const Phase phase = Phase::backward;
      rebind(h_pre, spec_.save_pre_activation ? borrowed(kept.pre_activations[in_segment]) : fc1(i, phase, x_in));
      rebind(h, relu(i, phase, h_pre));
      rebind(gh, matmul({i, "gh", phase, OpKind::matmul, true}, "gh", hidden_, g, p.w2));
      result(matmul({i, "gw2", phase, OpKind::matmul, true}, "w2.grad", weight_, h, g, Category::gradient));
      result(sum_of_rows({i, "gb2", phase, OpKind::add, true}, "b2.grad", bias2_, g));
      const StorageId mask = call({i, "mask", phase, OpKind::relu, true}, "mask", mask_, Category::temporary,
                                  {0, elements(hidden_)}, {h_pre});
      const StorageId product = call({i, "g_pre", phase, OpKind::relu, true}, "g_pre", hidden_, Category::temporary,
                                     {0, elements(hidden_)}, {gh, mask});
      emit_.release(mask);
      rebind(g_pre, product);
      rebind(gx, matmul({i, "gx", phase, OpKind::matmul, true}, "x.grad", boundary_, g_pre, p.w1));
      result(matmul({i, "gw1", phase, OpKind::matmul, true}, "w1.grad", weight_, x_in, g_pre, Category::gradient));
      result(sum_of_rows({i, "gb1", phase, OpKind::add, true}, "b1.grad", bias1_, g_pre));
      rebind(g, borrowed(gx));
    }
    for (StorageId* local : {&h_pre, &h, &gh, &g_pre, &gx}) del(*local);
    return g;
  }

  StorageId sum_of_rows(const Call& at, const char* result_name, Bytes bytes, StorageId of) {
    return call(at, result_name, bytes, Category::gradient, {0, elements(step_.storages[of].bytes)}, {of});
  }
  /// A parameter's gradient: `grads` keeps it.
  void result(StorageId gradient) { results_.push_back(gradient); }

  /// del g, grads: g first, then grads from the last layer to the first, in each gb2, gw2, gb1, gw1.
  void delete_results() {
    StepOp op;
    op.phase = Phase::optimizer;
    op.step = static_cast<std::int16_t>(number_);
    emit_.begin_op(op, "delete_gradients");
    emit_.compute({});
    emit_.release(results_.back());
    // Born from the last layer to the first, in each gw2, gb2, gw1, gb1.
    for (std::size_t layer = 0; layer + 1 < results_.size(); layer += 4)
      for (const std::size_t of : {1, 0, 3, 2}) emit_.release(results_[layer + of]);
    results_.clear();
  }

  void plain_step() {
    Activations kept = model_forward(Phase::forward, x_, 0, spec_.layers);
    const StorageId g = model_backward(grad_output_, kept, 0, spec_.layers);
    del(kept.boundaries);
    del(kept.pre_activations);
    result(g);
  }

  void checkpointed_step() {
    std::vector<StorageId> saved = {borrowed(x_)};
    StorageId out = forward_checkpointed(saved);
    if (!training_.loop.logits_held) del(out);
    const StorageId g = backward_checkpointed(saved);
    if (out != none) del(out);
    del(saved);
    result(g);
  }

  /// model_forward_checkpointed: one boundary after every `segment_` layers, so one more than there are segments when
  /// the segments divide the layers.
  StorageId forward_checkpointed(std::vector<StorageId>& saved) {
    StorageId h = borrowed(x_);
    for (std::int64_t i = 0; i < spec_.layers; ++i) {
      rebind(h, layer_forward(i, Phase::forward, h, nullptr));
      if ((i + 1) % segment_ == 0) saved.push_back(borrowed(h));
    }
    return h;
  }

  StorageId backward_checkpointed(const std::vector<StorageId>& saved) {
    StorageId g = borrowed(grad_output_);
    Activations kept;
    for (std::size_t j = saved.size(); j-- > 0;) {
      const std::int64_t begin = static_cast<std::int64_t>(j) * segment_;
      const std::int64_t end = std::min(begin + segment_, spec_.layers);
      if (begin >= end) continue;
      Activations rebuilt = model_forward(Phase::recompute, saved[j], begin, end);
      del(kept.boundaries);
      del(kept.pre_activations);
      kept = std::move(rebuilt);
      rebind(g, model_backward(g, kept, begin, end));
    }
    del(kept.boundaries);
    del(kept.pre_activations);
    return g;
  }

  const MlpSpec& spec_;
  const Training& training_;
  std::int64_t segment_;  // layers; 0 without checkpointing
  Bytes boundary_, hidden_, mask_, weight_, bias1_, bias2_;
  std::int64_t product_flops_ = 0;
  Step step_;
  Emitter emit_;
  int number_ = 0;
  std::vector<LayerParameters> parameters_;
  StorageId x_ = none, grad_output_ = none;
  std::vector<StorageId> results_;  // grads in order of birth, then g
};

/// Layers a segment, 0 when nothing is recomputed. The program knows segments of one length only.
std::int64_t segment_length(const Plan& plan, std::int64_t layers) {
  std::vector<PlanStep> given;
  for (PlanStep step : plan.steps) {
    if (step.action == Action::loss || step.layer >= layers) continue;  // the program is given grad_output
    step.region = -1;
    given.push_back(std::move(step));
  }
  std::int64_t length = 0;
  for (std::size_t i = 0; i < given.size() && given[i].keep != Keep::all; ++i)
    if (i == 0 || given[i].keep == Keep::none)
      ++length;
    else
      break;
  std::vector<PlanStep> known;
  const auto add = [&](Action action, std::int64_t layer, Keep keep) {
    known.push_back({.action = action, .layer = static_cast<std::int32_t>(layer), .ops = {}, .keep = keep});
  };
  for (std::int64_t i = 0; i < layers; ++i)
    add(Action::forward, i, length == 0 ? Keep::all : i % length == 0 ? Keep::input : Keep::none);
  const std::int64_t step = length == 0 ? layers : length;
  for (std::int64_t begin = (layers - 1) / step * step; begin >= 0; begin -= step) {
    const std::int64_t end = std::min(begin + step, layers);
    for (std::int64_t i = begin; length > 0 && i < end; ++i) add(Action::recompute, i, Keep::all);
    for (std::int64_t i = end - 1; i >= begin; --i) add(Action::backward, i, Keep::all);
  }
  if (known != given)
    throw InputError(
        "profile 'reference' runs segments of one length from layer 0 on, each rebuilt right before its "
        "backward; take profile 'ideal' for other plans");
  return length;
}

}  // namespace

Step lower_reference(const MlpSpec& spec, const Plan& plan, const Training& training) {
  if (spec.style != "matmul" || spec.activation != "relu")
    throw InputError("profile 'reference' knows style 'matmul' with activation 'relu' only");
  if (training.optimizer.kind != OptimizerKind::none || training.batch.accumulate != 1)
    throw InputError("profile 'reference' has no optimizer and no gradient accumulation");
  return ReferenceLowering(spec, training, segment_length(plan, spec.layers)).lower();
}

}  // namespace tidemark
