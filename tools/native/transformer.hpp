/// A pre-norm decoder as GPT-2 is built: norm, q, k, v, causal softmax attention, projection, GELU MLP, residuals,
/// cross-entropy; trained by AdamW, under any plan of whole blocks or of single ops.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "autograd.hpp"
#include "plan_file.hpp"

namespace tidemark::native {

struct TransformerShape {
  std::int64_t layers = 2, hidden = 64, heads = 4, ffn_hidden = 256, vocab = 128, positions = 64;
  std::int64_t batch = 2, sequence = 32;
  bool tied_embeddings = true;
};

enum class OptimizerKind : std::uint8_t {
  none,
  adamw,        // the square roots of all second moments are there together, as in multi-tensor forms
  adamw_fused,  // in one pass, without temporaries
};

class Transformer {
 public:
  /// Allocates and fills all that lives before the first step. An empty plan keeps everything. Throws Mistake where the
  /// plan asks for what this program does not do.
  Transformer(Machine& machine, const TransformerShape& shape, const Plan& plan, OptimizerKind optimizer);
  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;

  /// One training step of `micro_batches`, all of the same tokens. Without an optimizer the last step's gradients stay.
  void step(int number, int micro_batches, bool is_last);
  /// The loss of a forward pass of which nothing is kept, in double precision from the logits on.
  double evaluate();

  float loss() const { return last_loss_; }
  std::deque<Parameter>& parameters() { return parameters_; }

 private:
  /// What a plan calls a layer: its ops in the order in which forward runs them, and the code that calls them.
  struct Layer {
    std::string_view name;
    std::deque<Node> nodes;
    std::function<Value(Value)> forward;
  };
  /// One step of the plan.
  struct Turn {
    enum class What : std::uint8_t { forward, run_again, backward } what = What::forward;
    Layer* layer = nullptr;
    std::vector<Node*> nodes;  // in the order in which they run
  };

  // ---- the model
  Layer& add_layer(const std::string& name);
  Node& op(Layer& layer, std::string_view part, const Rule& rule, OpSettings settings = {});
  Node& norm(Layer& layer, const std::string& part);
  Node& linear(Layer& layer, const std::string& part, std::int64_t in, std::int64_t out);
  Parameter& parameter(const Layer& layer, const std::string& part, Dims shape, double scale, float middle = 0);
  void add_embedding();
  void add_block(std::int64_t number);
  void add_head();
  void add_loss();
  void fill_inputs();

  // ---- the plan
  void compile(const Plan& plan);
  void add_turn(const PlanStep& step);
  std::vector<Node*> nodes_of(const PlanStep& step, Layer& layer) const;
  void check_complete() const;

  // ---- the step
  void run(const Turn& turn);
  void begin_backward();
  void optimize();
  void zero_gradients();

  Machine& machine_;
  Context context_;
  TransformerShape shape_;
  OptimizerKind optimizer_;
  std::deque<Parameter> parameters_;
  Tensor input_ids_, position_ids_, causal_mask_, labels_;
  std::deque<Layer> layers_;
  std::map<std::string, Layer*> by_plan_name_;  // blocks by number
  std::vector<Turn> turns_;
  Value flowing_;  // between the layers of forward
  std::vector<Tensor> roots_;
  float last_loss_ = 0;
  int updates_ = 0;
  bool in_backward_ = false;
};

}  // namespace tidemark::native
