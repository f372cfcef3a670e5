/// llm.c's training step: arrays that are allocated once, each for all layers, and never freed.
///
/// float32 is train_gpt2.c (fill_in_activation_sizes, gpt2_forward, gpt2_backward, gpt2_update): every array appears
/// when it is first written. 16-bit parameters are train_gpt2.cu of 2024-07: all arrays exist before the first step,
/// activations have no gradients but shared scratch, and `-r 1` (gelu) and `-r 2` (gelu, layer_norm) keep one layer's
/// buffer, or none, of what they compute again.
#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tidemark/base/errors.hpp"
#include "tidemark/step/emitter.hpp"
#include "tidemark/step/kernel.hpp"
#include "tidemark/step/lower.hpp"

namespace tidemark {
namespace {

/// An array of `elements` each of `item` bytes.
struct Array {
  std::string name;
  std::int64_t elements = 0, item = 4;
};

[[noreturn]] void refuse(const std::string& what) { throw InputError("profile llm.c: " + what); }

class LlmcLowering {
 public:
  LlmcLowering(const TransformerSpec& spec, const Plan& plan, const Training& training)
      : spec_(spec), training_(training), program_(make_transformer(spec, training)), emit_(step_) {
    check_program();
    read_recompute(plan);
    const KernelSet kernels(training.profile.kernels);
    for (const ProgramOp& op : program_.ops) kernels_.push_back(kernels.kernel(program_, op));
  }

  Step lower() {
    for (const Layer& layer : program_.layers) step_.layers.push_back(layer.name);
    for (const TensorId id : program_.parameters) {
      const Tensor& p = program_.tensors[static_cast<std::size_t>(id)];
      parameters_.push_back({p.name, *element_count(p.shape), bytes_per_element(p.dtype)});
    }
    start(parameters_, "", Category::parameter);
    if (on_gpu())
      allocate_all();
    else
      start(batch(), ".loader", Category::input);  // the loader's own copies, on the same heap
    for (number_ = 0; number_ < training_.loop.steps; ++number_) {
      for (micro_batch_ = 0; micro_batch_ < training_.batch.accumulate; ++micro_batch_) {
        forward();
        backward();
      }
      update();
    }
    step_.steps = training_.loop.steps;
    step_.parameters = parameter_count(program_);
    step_.model_flops = Int128{training_.batch.accumulate} * program_.model_flops;
    return std::move(step_);
  }

 private:
  bool on_gpu() const { return training_.dtypes.parameters != DType::float32; }

  void check_program() const {
    if (spec_.model_type != "gpt2") refuse("trains GPT-2 only, not '" + spec_.model_type + "'");
    if (spec_.embedding_dropout > 0 || spec_.attention_dropout > 0 || spec_.residual_dropout > 0)
      refuse("has no dropout; set model.dropout: 0");
    if (spec_.ffn_hidden != 4 * spec_.hidden)
      refuse("has ffn_hidden = 4 x hidden, not " + std::to_string(spec_.ffn_hidden));
    if (spec_.vocab % 128 != 0)
      refuse("pads the vocabulary to whole 128s; write " + std::to_string((spec_.vocab + 127) / 128 * 128) + ", not " +
             std::to_string(spec_.vocab));
    if (training_.optimizer.kind != OptimizerKind::adamw) refuse("has AdamW only; write optimizer: adamw");
    if (training_.optimizer.in_backward || training_.optimizer.block_8bit > 0)
      refuse("has no optimizer 'in_backward' and no 8-bit 'states'");
  }

  /// `-r 1` and `-r 2`, as the set of op kinds that the plan runs again.
  void read_recompute(const Plan& plan) {
    std::vector<std::vector<OpKind>> kinds(program_.layers.size());
    for (const ProgramOp& op : program_.ops) kinds[static_cast<std::size_t>(op.layer)].push_back(op.kind);
    std::set<OpKind> again;
    for (const PlanStep& step : plan.steps) {
      if (step.action != Action::recompute) continue;
      const std::vector<OpKind>& layer = kinds[static_cast<std::size_t>(step.layer)];
      if (step.ops.empty()) again.insert(layer.begin(), layer.end());
      for (const std::int32_t op : step.ops) again.insert(layer[static_cast<std::size_t>(op)]);
    }
    gelu_again_ = again.contains(OpKind::gelu);
    norms_again_ = again.contains(OpKind::layer_norm);
    again.erase(OpKind::gelu);
    again.erase(OpKind::layer_norm);
    const bool known = again.empty() && (gelu_again_ || !norms_again_) && (on_gpu() || !gelu_again_);
    if (!known)
      refuse(on_gpu() ? "recomputes gelu, or gelu and layer_norm: {kind: selective, recompute: [gelu]}"
                      : "recomputes nothing in float32, which is train_gpt2.c");
  }

  /// fill_in_activation_sizes.
  std::vector<Array> activations() const {
    const std::int64_t rows = training_.batch.size * training_.batch.sequence;
    const std::int64_t layers = spec_.layers, channels = rows * spec_.hidden, vocab = spec_.vocab;
    const std::int64_t squares = rows * spec_.heads * training_.batch.sequence;
    const std::int64_t item = bytes_per_element(training_.dtypes.parameters);
    if (!on_gpu())
      return {{"encoded", channels},
              {"ln1", layers * channels},
              {"ln1_mean", layers * rows},
              {"ln1_rstd", layers * rows},
              {"qkv", layers * 3 * channels},
              {"atty", layers * channels},
              {"preatt", layers * squares},
              {"att", layers * squares},
              {"attproj", layers * channels},
              {"residual2", layers * channels},
              {"ln2", layers * channels},
              {"ln2_mean", layers * rows},
              {"ln2_rstd", layers * rows},
              {"fch", layers * 4 * channels},
              {"fch_gelu", layers * 4 * channels},
              {"fcproj", layers * channels},
              {"residual3", layers * channels},
              {"lnf", channels},
              {"lnf_mean", rows},
              {"lnf_rstd", rows},
              {"logits", rows * vocab},
              {"probs", rows * vocab},
              {"losses", rows}};
    const std::int64_t norms = norms_again_ ? 0 : layers * channels;
    const Array att = spec_.attention == "eager" ? Array{"att", layers * squares, item}
                                                 : Array{"att", layers * rows * spec_.heads};  // cuDNN's statistics
    return {{"encoded", channels, item},
            {"ln1", norms, item},
            {"ln1_mean", layers * rows},
            {"ln1_rstd", layers * rows},
            {"atty", layers * channels, item},
            att,
            {"residual2", layers * channels, item},
            {"ln2", norms, item},
            {"ln2_mean", layers * rows},
            {"ln2_rstd", layers * rows},
            {"fch", layers * 4 * channels, item},
            {"fch_gelu", (gelu_again_ ? 1 : layers) * 4 * channels, item},
            {"residual3", layers * channels, item},
            {"lnf", channels, item},
            {"lnf_mean", rows},
            {"lnf_rstd", rows},
            {"losses", rows},
            {"qkvr", layers * 3 * channels, item},
            {"output", std::max({3 * channels, squares, rows * vocab}), item},
            {"scratch_bt4c", 4 * channels, item},
            {"scratch_btc", channels, item}};
  }

  std::vector<Array> batch() const {
    const std::int64_t rows = training_.batch.size * training_.batch.sequence;
    return {{"inputs", rows}, {"targets", rows}};
  }
  /// The parameters' arrays with `item` bytes an element.
  std::vector<Array> like_parameters(std::int64_t item) const {
    std::vector<Array> out = parameters_;
    for (Array& array : out) array.item = item;
    return out;
  }

  static Bytes size(const Array& array) {
    const std::optional<std::int64_t> bytes = checked_product(array.elements, array.item);
    if (!bytes) refuse("the size of '" + array.name + "' passes 2^63 bytes");
    return {*bytes};
  }
  void start(const std::vector<Array>& arrays, const std::string& suffix, Category category) {
    for (const Array& array : arrays)
      step_.storages[emit_.initial(array.name + suffix, size(array), category, -1)].outlives_step = true;
  }
  void allocate(const std::vector<Array>& arrays, const std::string& suffix, Category category) {
    for (const Array& array : arrays)
      step_.storages[emit_.alloc(array.name + suffix, size(array), category, -1)].outlives_step = true;
  }

  /// Moments are floats whatever the weights are, in both programs.
  std::int64_t moment_bytes() const { return bytes_per_element(training_.dtypes.moments.value_or(DType::float32)); }

  /// gpt2_allocate_state (train_gpt2.cu): gradients, activations, the batch, moments, master weights.
  void allocate_all() {
    start(parameters_, ".grad", Category::gradient);
    start(activations(), "", Category::activation);
    start(batch(), "", Category::input);
    start(like_parameters(moment_bytes()), ".m", Category::optimizer_state);
    start(like_parameters(moment_bytes()), ".v", Category::optimizer_state);
    if (training_.dtypes.master)
      start(like_parameters(bytes_per_element(*training_.dtypes.master)), ".master", Category::optimizer_state);
  }

  /// An array's first use in train_gpt2.c allocates all of its group.
  bool first_use() const { return !on_gpu() && number_ == 0 && micro_batch_ == 0; }

  void kernel(const ProgramOp& op, Phase phase, const Cost& cost, bool allocates) {
    StepOp out;
    out.layer = op.layer;
    out.phase = phase;
    out.dtype = training_.dtypes.parameters;
    out.step = static_cast<std::int16_t>(number_);
    out.micro_batch = micro_batch_;
    out.flops = cost.matmul_flops;
    out.other_flops = cost.other_flops;
    out.moved = cost.moved;
    out.kind = op.kind;
    out.is_backward = phase == Phase::backward;
    emit_.begin_op(out, op.name);
    if (allocates && phase == Phase::forward) {
      allocate(activations(), "", Category::activation);
      allocate(batch(), "", Category::input);
    } else if (allocates) {
      allocate(parameters_, ".grad", Category::gradient);
      allocate(activations(), ".grad", Category::gradient);
    }
    emit_.compute({});
  }

  bool is_loss(const ProgramOp& op) const { return program_.layers[static_cast<std::size_t>(op.layer)].name == "loss"; }

  void forward() {
    bool first = first_use();
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      const ProgramOp& op = program_.ops[i];
      const Kernel& k = kernels_[i];
      if (k.forward.empty()) continue;  // a view
      kernel(op, is_loss(op) ? Phase::loss : Phase::forward, k.forward_cost, std::exchange(first, false));
    }
  }

  void backward() {
    bool first = first_use();
    for (std::size_t i = program_.ops.size(); i-- > 0;) {
      const ProgramOp& op = program_.ops[i];
      const Kernel& k = kernels_[i];
      const bool block = program_.layers[static_cast<std::size_t>(op.layer)].is_block;
      const bool again =
          block && ((gelu_again_ && op.kind == OpKind::gelu) || (norms_again_ && op.kind == OpKind::layer_norm));
      if (again) kernel(op, Phase::recompute, k.forward_cost, false);
      if (!k.backward.empty()) kernel(op, Phase::backward, k.backward_cost, std::exchange(first, false));
    }
  }

  void update() {
    StepOp op;
    op.phase = Phase::optimizer;
    op.dtype = training_.dtypes.parameters;
    op.step = static_cast<std::int16_t>(number_);
    op.other_flops = 12 * parameter_count(program_);
    emit_.begin_op(op, "gpt2_update");
    if (!on_gpu() && number_ == 0) {
      allocate(like_parameters(moment_bytes()), ".m", Category::optimizer_state);
      allocate(like_parameters(moment_bytes()), ".v", Category::optimizer_state);
    }
    emit_.compute({});
  }

  TransformerSpec spec_;
  const Training& training_;
  Program program_;
  std::vector<Kernel> kernels_;  // by op
  Step step_;
  Emitter emit_;
  std::vector<Array> parameters_;
  bool gelu_again_ = false, norms_again_ = false;
  int number_ = 0, micro_batch_ = 0;
};

}  // namespace

Step lower_llmc(const TransformerSpec& spec, const Plan& plan, const Training& training) {
  return LlmcLowering(spec, plan, training).lower();
}

}  // namespace tidemark
