/// Attention of ranks that divide the tokens of each sequence, as Transformer Engine does it with cp_comm_type p2p.
#include <cstddef>
#include <vector>

#include "draft.hpp"
#include "tidemark/program/shards.hpp"

namespace tidemark::kernels {
namespace {

constexpr std::int64_t fp32 = 4;
constexpr std::int64_t int64 = 8;

/// The first rank has the first and the last of a sequence's 2 x ranks chunks. On its own keys it takes all its
/// queries, causal; on those of any other rank the queries of its last chunk, whole: 1/2 of them.
std::int64_t part_of_queries(std::int64_t behind) { return behind == 0 ? 1 : 2; }

/// Either step is half of queries x keys, which is why this division is balanced: a causal square in each.
AttentionFlops ring_flops(const OpView& op) {
  const AttentionFlops step = attention_flops(op);
  const std::int64_t ranks = op.op.attributes.ranks;
  return {product(op, ranks, step.forward), product(op, ranks, step.backward)};
}

/// What flash-attn's backward needs besides, for so many rows of queries (flash_api.cpp, mha_bwd; see cuda.cpp).
std::vector<std::int32_t> backward_step(Draft& k, const OpView& op, std::int64_t query_rows) {
  const Tensor& q = op.input(0);
  const Tensor& keys = op.input(1);
  const std::int64_t batch_heads = product(op, q.shape.at(0), q.shape.at(1));
  const std::int64_t padded = product(op, batch_heads, tidemark::round_up(query_rows, 128));
  const std::int64_t width = tidemark::round_up(q.shape.at(3), 32);
  std::vector<std::int32_t> inside = {k.temp("softmax_d", product(op, fp32, padded)),
                                      k.temp("dq_accum", product(op, fp32, product(op, padded, width)))};
  if (keys.shape.at(1) != q.shape.at(1))  // for all query heads, before each group's are added up
    for (const std::size_t i : {std::size_t{1}, std::size_t{2}})
      inside.push_back(k.temp(i == 1 ? "dk_expanded" : "dv_expanded",
                              product(op, bytes(op.input(i)) / keys.shape.at(1), q.shape.at(1))));
  return inside;
}

}  // namespace

/// AttnFuncWithCPAndKVP2P (transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py) on the first
/// rank. Forward copies k and v into one buffer and receives one more of that size in every step but the last: the list
/// of them, p2p_comm_buffers, and every step's output and statistics live until all outputs have been corrected. Kept
/// are q, the buffer that came last in place of k and v, the output, one statistic a row, and each step's generator
/// state. Backward takes two buffers of keys, values and their gradients, sends one while the other fills, and returns
/// dk and dv as views of the second.
Kernel ring_attention(const OpView& op) {
  const std::int64_t ranks = op.op.attributes.ranks;
  const std::int64_t queries = bytes(op.input(0)), out = bytes(op.output(0));
  const std::int64_t statistics = product(op, fp32, rows(op.input(0)));
  const std::int64_t kv = bytes(op.input(1)) + bytes(op.input(2));
  const AttentionFlops flops = ring_flops(op);
  Draft k(op);
  std::vector<std::int32_t> buffers = {k.temp("kv", kv)}, partial, states;
  std::int32_t logsumexp = -1;
  for (std::int64_t i = 0; i < ranks; ++i) {
    if (i + 1 < ranks) {
      buffers.push_back(k.temp("kv_received", kv));
      k.send_receive(kv);
    }
    partial.push_back(k.temp("step_output", out / part_of_queries(i)));
    partial.push_back(k.temp("step_logsumexp", statistics / part_of_queries(i)));
    states.push_back(k.temp("rng_state", 2 * int64));
    if (i == 0) logsumexp = k.temp("logsumexp", statistics);
  }
  k.outputs().run();
  for (const std::int32_t temp : partial) k.free_temp(temp);
  for (std::size_t i = 0; i + 1 < buffers.size(); ++i) k.free_temp(buffers[i]);
  k.save_input(0).save_temp(buffers.back()).save_output().save_temp(logsumexp);
  for (const std::int32_t state : states) k.save_temp(state);

  // Steps in reverse: the rank's own keys come last.
  k.backward();
  const std::int32_t second_half = k.temp("logsumexp_half", statistics / 2);
  k.gradient(0, Layout::like_input);
  const std::int32_t buffer = k.temp("kv_and_gradients", product(op, 2, kv));
  // The other buffer, of the same size, is the storage of dv, which outlives its other view, dk.
  k.gradient_of_bytes(1, 0).gradient_of_bytes(2, product(op, 2, kv));
  std::int32_t before = -1;
  for (std::int64_t i = ranks - 1; i >= 0; --i) {
    k.send_receive(i == 0 || i == ranks - 1 ? kv : product(op, 2, kv));
    const std::int32_t dq = k.temp("step_dq", queries / part_of_queries(i));
    const std::int32_t dkv = k.temp("step_dkv", kv);
    if (before >= 0) k.free_temp(before);
    const std::vector<std::int32_t> inside = backward_step(k, op, op.input(0).shape.at(2) / part_of_queries(i));
    if (i == 0) k.run();
    for (const std::int32_t temp : inside) k.free_temp(temp);
    k.free_temp(dq);
    before = dkv;
  }
  k.free_temp(before).free_temp(buffer).free_temp(second_half);
  return k.matmul_flops(flops.forward, flops.backward).finish();
}

}  // namespace tidemark::kernels
