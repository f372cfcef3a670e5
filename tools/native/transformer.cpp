#include "transformer.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels.hpp"
#include "mlp.hpp"
#include "ops.hpp"

namespace tidemark::native {

// ---- the model

Transformer::Transformer(Machine& machine, const TransformerShape& shape, const Plan& plan, OptimizerKind optimizer)
    : machine_(machine), context_(machine), shape_(shape), optimizer_(optimizer) {
  add_embedding();
  for (std::int64_t i = 0; i < shape.layers; ++i) add_block(i);
  add_head();
  add_loss();
  fill_inputs();
  compile(plan);
  roots_.reserve(parameters_.size());
}

Transformer::Layer& Transformer::add_layer(const std::string& name) {
  Layer& layer = layers_.emplace_back();
  layer.name = machine_.lasting(name);
  by_plan_name_[name] = &layer;
  return layer;
}

Node& Transformer::op(Layer& layer, std::string_view part, const Rule& rule, OpSettings settings) {
  return layer.nodes.emplace_back(context_, layer.name, part, rule, settings);
}

/// Values around `middle`.
Parameter& Transformer::parameter(const Layer& layer, const std::string& part, Dims shape, double scale, float middle) {
  const auto seed = static_cast<std::int64_t>(parameters_.size());
  Parameter& out = parameters_.emplace_back();
  out.value = machine_.allocate({layer.name, machine_.lasting(part)}, shape, Category::parameter);
  fill(out.value, seed, scale);
  for (std::int64_t i = 0; i < out.value.elements(); ++i) out.value.data()[i] += middle;
  return out;
}

Node& Transformer::norm(Layer& layer, const std::string& part) {
  Parameter& weight = parameter(layer, part + ".weight", {shape_.hidden}, 0.5, 1);
  Parameter& bias = parameter(layer, part + ".bias", {shape_.hidden}, 0.5);
  return op(layer, machine_.lasting(part), ops::layer_norm).reads(1, weight).reads(2, bias);
}

Node& Transformer::linear(Layer& layer, const std::string& part, std::int64_t in, std::int64_t out) {
  Parameter& weight = parameter(layer, part + ".weight", {out, in}, 3.0 / std::sqrt(static_cast<double>(in)));
  Parameter& bias = parameter(layer, part + ".bias", {out}, 0.5);
  return op(layer, machine_.lasting(part), ops::linear).reads(1, weight).reads(2, bias);
}

void Transformer::add_embedding() {
  Layer& layer = add_layer("embedding");
  Parameter& tokens_table = parameter(layer, "tokens.weight", {shape_.vocab, shape_.hidden}, 2);
  Parameter& positions_table = parameter(layer, "positions.weight", {shape_.positions, shape_.hidden}, 2);
  Node& tokens = op(layer, "tokens", ops::embedding).reads(0, input_ids_).reads(1, tokens_table);
  Node& positions = op(layer, "positions", ops::embedding).reads(0, position_ids_).reads(1, positions_table);
  Node& add = op(layer, "add", ops::add);
  layer.forward = [&](const Value& /* nothing flows to it */) {
    Value x = tokens();
    return add(std::move(x), positions());
  };
}

void Transformer::add_block(std::int64_t number) {
  Layer& layer = add_layer("layers." + std::to_string(number));
  by_plan_name_[std::to_string(number)] = &layer;
  const std::int64_t hidden = shape_.hidden, heads = shape_.heads, width = hidden / heads;
  const Dims by_head{shape_.batch, shape_.sequence, heads, width};
  const auto view = [&](std::string_view part, std::size_t a, std::size_t b) -> Node& {
    return op(layer, part, ops::transpose, {.swap = {a, b}});
  };
  const auto shaped = [&](std::string_view part, Dims shape) -> Node& {
    return op(layer, part, ops::reshape, {.shape = shape});
  };

  Node& attention_norm = norm(layer, "attention_norm");
  Node& qkv_proj = linear(layer, "attention.qkv_proj", hidden, 3 * hidden);
  Node& split = op(layer, "attention.split", ops::split, {.outputs = {"attention.q", "attention.k", "attention.v"}});
  Node& q_heads = shaped("attention.q_heads", by_head);
  Node& q_transposed = view("attention.q_transposed", 1, 2);
  Node& k_heads = shaped("attention.k_heads", by_head);
  Node& k_transposed = view("attention.k_transposed", 1, 2);
  Node& v_heads = shaped("attention.v_heads", by_head);
  Node& v_transposed = view("attention.v_transposed", 1, 2);
  Node& keys = view("attention.core_attn.k_transposed", 2, 3);
  Node& scores = op(layer, "attention.core_attn.scores", ops::product);
  Node& scale = op(layer, "attention.core_attn.scale", ops::scale,
                   {.factor = static_cast<float>(1 / std::sqrt(static_cast<double>(width)))});
  Node& mask = op(layer, "attention.core_attn.mask", ops::causal_mask).reads(1, causal_mask_);
  Node& softmax = op(layer, "attention.core_attn.softmax", ops::softmax);
  Node& context = op(layer, "attention.core_attn.context", ops::product);
  Node& merge_transposed = view("attention.merge_transposed", 1, 2);
  // With one head, or one token, the heads lie side by side already.
  const bool copies = heads > 1 && shape_.sequence > 1;
  Node* merge_copy = copies ? &op(layer, "attention.core_attn.merge_copy", ops::row_major) : nullptr;
  Node& merge = shaped("attention.merge", {shape_.batch, shape_.sequence, hidden});
  Node& o_proj = linear(layer, "attention.o_proj", hidden, hidden);
  Node& attention_residual = op(layer, "attention_residual", ops::add);
  Node& mlp_norm = norm(layer, "mlp_norm");
  Node& up_proj = linear(layer, "mlp.up_proj", hidden, shape_.ffn_hidden);
  Node& activation = op(layer, "mlp.activation", ops::gelu);
  Node& down_proj = linear(layer, "mlp.down_proj", shape_.ffn_hidden, hidden);
  Node& mlp_residual = op(layer, "mlp_residual", ops::add);

  const auto attention = [&, merge_copy](Value x) {
    auto [q, k, v] = split.split(qkv_proj(std::move(x)));
    q = q_transposed(q_heads(std::move(q)));
    k = k_transposed(k_heads(std::move(k)));
    v = v_transposed(v_heads(std::move(v)));
    k = keys(std::move(k));
    Value weights = softmax(mask(scale(scores(std::move(q), std::move(k)))));
    Value merged = merge_transposed(context(std::move(weights), std::move(v)));
    if (merge_copy != nullptr) merged = (*merge_copy)(std::move(merged));
    return o_proj(merge(std::move(merged)));
  };
  layer.forward = [&, attention](Value x) {
    Value branch = attention(attention_norm(x));
    Value middle = attention_residual(std::move(x), std::move(branch));
    Value inner = activation(up_proj(mlp_norm(middle)));
    return mlp_residual(std::move(middle), down_proj(std::move(inner)));
  };
}

void Transformer::add_head() {
  Layer& layer = add_layer("head");
  Node& last_norm = norm(layer, "norm");
  Parameter& weight = shape_.tied_embeddings ? parameters_.front()
                                             : parameter(layer, "lm_head.weight", {shape_.vocab, shape_.hidden}, 2);
  Node& lm_head = op(layer, "lm_head", ops::linear).reads(1, weight);
  layer.forward = [&](Value x) { return lm_head(last_norm(std::move(x))); };
}

void Transformer::add_loss() {
  Layer& layer = add_layer("loss");
  Node& cross_entropy = op(layer, "cross_entropy", ops::cross_entropy).reads(1, labels_);
  layer.forward = [&](Value logits) { return cross_entropy(std::move(logits)); };
}

void Transformer::fill_inputs() {
  const Dims tokens{shape_.batch, shape_.sequence};
  constexpr std::int64_t item = sizeof(std::int64_t);
  input_ids_ = machine_.allocate({"", "input_ids"}, tokens, Category::input, item);
  position_ids_ = machine_.allocate({"", "position_ids"}, {1, shape_.sequence}, Category::input, item);
  causal_mask_ = machine_.allocate({"", "causal_mask"}, {shape_.sequence, shape_.sequence}, Category::input, 1);
  labels_ = machine_.allocate({"", "labels"}, tokens, Category::input, item);
  const std::int64_t count = shape_.batch * shape_.sequence;
  for (std::int64_t i = 0; i < count; ++i) {
    input_ids_.data_as<std::int64_t>()[i] = (7 * i + i * i) % shape_.vocab;
    labels_.data_as<std::int64_t>()[i] = (3 * i + 1) % shape_.vocab;
  }
  for (std::int64_t i = 0; i < shape_.sequence; ++i) {
    position_ids_.data_as<std::int64_t>()[i] = i;
    for (std::int64_t j = 0; j < shape_.sequence; ++j)
      causal_mask_.data_as<std::uint8_t>()[i * shape_.sequence + j] = j > i ? 1 : 0;
  }
}

// ---- the plan

void Transformer::compile(const Plan& plan) {
  Plan steps = plan;
  if (steps.empty()) {
    for (const Layer& layer : layers_)
      steps.push_back({layer.name == "loss" ? "loss" : "forward", std::string(layer.name), {}, "all"});
    for (std::size_t i = layers_.size(); i-- > 0;)
      steps.push_back({"backward", std::string(layers_[i].name), {}, "all"});
  }
  for (const PlanStep& step : steps) add_turn(step);
  check_complete();
}

std::vector<Node*> Transformer::nodes_of(const PlanStep& step, Layer& layer) const {
  std::vector<Node*> nodes;
  if (step.ops.empty())
    for (Node& node : layer.nodes) nodes.push_back(&node);
  for (const std::string& part : step.ops) {
    const auto found = std::ranges::find(layer.nodes, part, &Node::part);
    if (found == layer.nodes.end())
      throw Mistake("error: the plan names op '" + part + "', which layer '" + std::string(layer.name) + "' has not");
    nodes.push_back(&*found);
  }
  return nodes;
}

void Transformer::add_turn(const PlanStep& step) {
  const std::string name = step.op == "loss" ? "loss" : step.layer;
  const auto found = by_plan_name_.find(name);
  if (found == by_plan_name_.end())
    throw Mistake("error: the plan names layer '" + name + "' of a model with " + std::to_string(shape_.layers) +
                  " blocks");
  Layer& layer = *found->second;
  std::vector<Node*> nodes = nodes_of(step, layer);
  const auto now = static_cast<int>(turns_.size());
  if (step.op == "drop" || (step.op == "forward" && step.keep != "all"))
    for (Node* node : nodes) node->is_dropped = true;
  if (step.op == "drop") return;
  if (step.op == "forward" || step.op == "loss") {
    turns_.push_back({Turn::What::forward, &layer, {}});
  } else if (step.op == "recompute") {
    if (step.keep != "all")
      throw Mistake("error: the plan runs layer '" + name +
                    "' again and keeps nothing of it, which this program does not");
    for (Node* node : nodes)
      if (std::exchange(node->runs_again_at, now) != Node::never)
        throw Mistake("error: the plan runs op '" + std::string(node->part()) + "' of layer '" + name +
                      "' again twice, which this program does not");
    turns_.push_back({Turn::What::run_again, &layer, std::move(nodes)});
  } else {
    for (Node* node : nodes) node->runs_backward_at = now;
    std::ranges::reverse(nodes);
    turns_.push_back({Turn::What::backward, &layer, std::move(nodes)});
  }
}

void Transformer::check_complete() const {
  std::size_t forwards = 0;
  for (const Turn& turn : turns_)
    if (turn.what == Turn::What::forward) {
      if (forwards == layers_.size() || turn.layer != &layers_[forwards])
        throw Mistake("error: the plan runs layer '" + std::string(turn.layer->name) + "' forward out of turn");
      ++forwards;
    }
  for (const Layer& layer : layers_)
    for (const Node& node : layer.nodes)
      if (node.runs_backward_at == Node::never || forwards != layers_.size())
        throw Mistake("error: the plan does not run all of layer '" + std::string(layer.name) +
                      "' forward and backward");
}

// ---- the step

void Transformer::begin_backward() {
  for (Parameter& parameter : parameters_) parameter.still_to_come = parameter.readers;
  Node& last = layers_.back().nodes.back();
  const std::string_view scope = layers_.back().name;
  machine_.begin_op({scope, "gradient"}, scope, Phase::backward);
  Tensor seed = machine_.allocate({scope, last.part(), ".grad"}, {}, Category::gradient);
  *seed.data() = 1;
  machine_.record.touch_op();
  last.receive(0, std::move(seed));
  in_backward_ = true;
}

void Transformer::run(const Turn& turn) {
  if (turn.what == Turn::What::forward) {
    const bool is_loss = turn.layer == &layers_.back();
    context_.phase = is_loss ? Phase::loss : Phase::forward;
    flowing_ = turn.layer->forward(std::move(flowing_));
    if (!is_loss) return;
    last_loss_ = *flowing_.tensor.data();
    flowing_.tensor.let_go();
    return;
  }
  if (!in_backward_) begin_backward();
  for (Node* node : turn.nodes) turn.what == Turn::What::run_again ? node->run_again() : node->run_backward();
}

void Transformer::step(int number, int micro_batches, bool is_last) {
  machine_.record.begin_step(number);
  for (int i = 0; i < micro_batches; ++i) {
    in_backward_ = false;
    for (const Turn& turn : turns_) run(turn);
  }
  if (optimizer_ != OptimizerKind::none) optimize();
  if (optimizer_ != OptimizerKind::none || !is_last) zero_gradients();
}

/// AdamW. Its first op makes the state, and finds it there in every later step.
void Transformer::optimize() {
  machine_.begin_op({"optimizer", "state"}, "", Phase::optimizer);
  for (Parameter& parameter : parameters_)
    for (int m = 0; m < 2 && parameter.moments[1].is_empty(); ++m) {
      parameter.moments[m] = machine_.allocate(parameter.value.name().with(m == 0 ? ".exp_avg" : ".exp_avg_sq"),
                                               parameter.value.shape(), Category::optimizer_state);
      std::fill_n(parameter.moments[m].data(), parameter.moments[m].elements(), 0.0F);
    }
  machine_.record.touch_op();
  kernels::AdamW settings;
  settings.step = ++updates_;
  machine_.begin_op({"optimizer", "float32"}, "", Phase::optimizer);
  for (Parameter& p : parameters_) {
    kernels::adamw_moments(settings, p.value.data(), p.gradient.data(), p.moments[0].data(), p.moments[1].data(),
                           p.value.elements());
    machine_.record.count_moved(7 * p.value.bytes());  // four read, three written
  }
  if (optimizer_ == OptimizerKind::adamw) {
    for (Parameter& p : parameters_) {
      Tensor& root = roots_.emplace_back(machine_.allocate(p.value.name().with(".sqrt"), p.value.shape()));
      kernels::square_root(p.moments[1].data(), root.data(), root.elements());
    }
    for (std::size_t i = 0; i < roots_.size(); ++i) {
      Parameter& p = parameters_[i];
      kernels::adamw_update(settings, p.value.data(), p.moments[0].data(), roots_[i].data(), p.value.elements());
    }
    while (!roots_.empty()) roots_.pop_back();  // a list lets its items go from the last on
  } else {
    for (Parameter& p : parameters_)
      kernels::adamw_update_fused(settings, p.value.data(), p.moments[0].data(), p.moments[1].data(),
                                  p.value.elements());
  }
  machine_.record.touch_op();
}

void Transformer::zero_gradients() {
  machine_.begin_op({"", "zero_grad"}, "", Phase::optimizer);
  for (Parameter& parameter : parameters_) parameter.gradient.let_go();
  machine_.record.touch_op();
}

double Transformer::evaluate() {
  double loss = 0;
  for (Layer& layer : layers_) {
    if (&layer == &layers_.back()) {
      const Tensor& logits = flowing_.tensor;
      const std::int64_t vocab = shape_.vocab, rows = logits.elements() / vocab;
      for (std::int64_t r = 0; r < rows; ++r) {
        double sum = 0;
        for (std::int64_t c = 0; c < vocab; ++c) sum += std::exp(double{logits.data()[r * vocab + c]});
        const std::int64_t label = labels_.data_as<std::int64_t>()[r];
        loss += (std::log(sum) - double{logits.data()[r * vocab + label]}) / static_cast<double>(rows);
      }
    }
    flowing_ = layer.forward(std::move(flowing_));
  }
  flowing_.tensor.let_go();
  for (Layer& layer : layers_)
    for (Node& node : layer.nodes) node.forget();
  return loss;
}

}  // namespace tidemark::native
