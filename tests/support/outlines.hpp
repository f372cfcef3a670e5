/// Small models as policies see them, for tests.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tidemark/program/layer_graph.hpp"
#include "tidemark/program/outline.hpp"

namespace tidemark {

inline LayerGraph chain_of(int layers) {
  LayerGraph graph;
  graph.is_chain = true;
  for (int i = 0; i < layers; ++i) {
    LayerCost cost;
    cost.layer_activation = Bytes{100};
    cost.forward_flops = Flops{20};
    cost.backward_flops = Flops{40};
    graph.layers.push_back(cost);
  }
  return graph;
}

inline Outline chain_outline(int layers) { return outline(chain_of(layers)); }

/// An op as a row: its name, kind, and the ops of the same layer it reads; op 0 reads the layer before.
struct OpRow {
  std::string name;
  std::string kind;
  std::vector<std::int32_t> reads;
};

inline OutlineLayer layer_of(std::int32_t index, std::string name, bool is_block, const std::vector<OpRow>& rows,
                             std::int32_t ops_before) {
  OutlineLayer layer{std::move(name), is_block ? "block" : "other", is_block, {}, {}};
  for (const OpRow& row : rows) {
    OutlineOp op{row.name, row.kind, Bytes{10}, Flops{5}, Bytes{10}, {}};
    for (const std::int32_t read : row.reads) op.inputs.push_back({index, read});
    if (row.reads.empty() && index > 0) op.inputs.push_back({index - 1, ops_before - 1});
    layer.saved_bytes += op.saved_bytes;
    layer.ops.push_back(op);
  }
  return layer;
}

/// A toy transformer: embedding, blocks of 10 ops, head, loss.
///
///   0 norm1 ─ 1 q ─ 2 softmax ─ 3 dropout ─ 4 context(3, 1) ─ 5 add(4, norm1's input) ─ 6 up ─ 7 gelu ─ 8 down ─ 9
///   add(8, 5)
inline Outline transformer_outline(int blocks) {
  Outline out;
  const auto add = [&](const std::string& name, bool is_block, const std::vector<OpRow>& rows) {
    const auto before = out.layers.empty() ? 0 : static_cast<std::int32_t>(out.layers.back().ops.size());
    out.layers.push_back(layer_of(static_cast<std::int32_t>(out.layers.size()), name, is_block, rows, before));
  };
  add("embedding", false, {{"tokens", "embedding", {}}, {"dropout", "dropout", {0}}});
  for (int i = 0; i < blocks; ++i)
    add("layers." + std::to_string(i), true,
        {{"norm1", "layer_norm", {}},
         {"attention.query", "linear", {0}},
         {"attention.core.softmax", "softmax", {1}},
         {"attention.core.dropout", "dropout", {2}},
         {"attention.core.context", "bmm", {3, 1}},
         {"add1", "add", {4}},
         {"mlp.up", "linear", {5}},
         {"mlp.act", "gelu", {6}},
         {"mlp.down", "linear", {7}},
         {"add2", "add", {8, 5}}});
  add("head", false, {{"norm", "layer_norm", {}}, {"logits", "linear", {0}}});
  add("loss", false, {{"cross_entropy", "cross_entropy", {}}});
  out.step_flops = Flops{Int128{15} * (10 * blocks + 5)};
  return out;
}

}  // namespace tidemark
