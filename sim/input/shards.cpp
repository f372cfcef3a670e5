#include "tidemark/input/shards.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "tidemark/input/ddp.hpp"
#include "tidemark/input/fsdp.hpp"
#include "tidemark/input/quantities.hpp"
#include "tidemark/input/yaml_map.hpp"
#include "tidemark/input/zero_optimization.hpp"

namespace tidemark {
namespace {

constexpr std::int64_t max_degree = 65'536;

constexpr std::array<std::string_view, 11> shard_keys = {
    "tensor", "sequence",          "context", "expert", "expert_tensor", "data", "sharding", "distributed_optimizer",
    "fsdp",   "zero_optimization", "ddp"};

class ShardReader {
 public:
  ShardReader(const YamlMap& map, const TransformerSpec* spec, const Training& training)
      : map_(map), spec_(spec), training_(training) {}

  Shards read() {
    refuse_other_families();
    read_degrees();
    if (spec_ == nullptr) return out_;
    check_expert_columns();
    check_tensor();
    check_sequence();
    check_context();
    check_expert();
    check_data();
    read_units();
    read_deepspeed();
    read_replicas();
    refuse_unsimulated();
    return out_;
  }

 private:
  void refuse_other_families() const {
    for (const std::string_view key : shard_keys)
      if (const auto field = map_.optional(key); field && spec_ == nullptr)
        field->fail(fmt::format("'{}' is for family transformer, whose tensors have shapes to divide", key));
  }

  int degree(std::string_view key, int otherwise = 1) const {
    return map_.get(
        key, [](const Field& f) { return static_cast<int>(positive_integer(f, max_degree)); }, otherwise);
  }

  void read_degrees() {
    out_.tensor = degree("tensor");
    out_.context = degree("context");
    out_.expert = degree("expert");
    out_.expert_tensor = degree("expert_tensor", out_.tensor);
    out_.data = degree("data");
    out_.sequence = map_.get("sequence", boolean, out_.sequence);
    out_.distributed_optimizer = map_.get("distributed_optimizer", boolean, out_.distributed_optimizer);
    if (const auto field = map_.optional("sharding"))
      out_.sharding = static_cast<Sharding>(std::ranges::find(sharding_names, choice(*field)) - sharding_names.begin());
  }

  bool megatron() const { return training_.profile.model_code == "megatron"; }

  /// "64 heads do not divide by tensor 3", at the degree.
  void divides(std::string_view key, std::int64_t whole, std::string_view of, std::int64_t by) const {
    if (whole % by != 0) map_.optional(key)->fail(fmt::format("{} {} do not divide by {} {}", whole, of, key, by));
  }

  void check_expert_columns() const {
    if (spec_->experts.count == 0 || out_.expert_tensor == 1) return;
    const std::string_view key = map_.optional("expert_tensor") ? "expert_tensor" : "tensor";
    divides(key, spec_->experts.hidden, "columns of an expert", out_.expert_tensor);
  }

  /// Column- and row-parallel products share heads and the width inside the feed-forward part.
  void check_tensor() const {
    if (out_.tensor == 1) return;
    divides("tensor", spec_->heads, "heads", out_.tensor);
    divides("tensor", spec_->kv_heads, "kv_heads", out_.tensor);
    const Experts& experts = spec_->experts;
    const bool dense =
        experts.count == 0 || experts.first_dense > 0 || experts.every > 1 || !experts.dense_layers.empty();
    if (dense) divides("tensor", spec_->ffn_hidden, "columns of ffn_hidden", out_.tensor);
    if (experts.count > 0) divides("tensor", experts.shared_hidden, "columns of the shared experts", out_.tensor);
    // Megatron-LM pads the vocabulary to what divides.
    if (!megatron()) divides("tensor", spec_->vocab, "words", out_.tensor);
  }

  void check_sequence() const {
    if (!out_.sequence) return;
    if (out_.tensor == 1)
      map_.optional("sequence")->fail("'sequence' divides tokens among tensor-parallel ranks; expected tensor above 1");
    divides("tensor", training_.batch.sequence / out_.context, "tokens of a rank's sequence", out_.tensor);
    if (spec_->embedding_norm)
      map_.optional("sequence")->fail("shared tokens of a model with 'embedding_norm' are not simulated");
  }

  /// Each rank takes a chunk from the front of a sequence and one from its end, so that causal attention is balanced.
  void check_context() const {
    if (out_.context == 1) return;
    if (spec_->image.size > 0) map_.optional("context")->fail("'context' divides sequences of tokens, not pictures");
    if (training_.batch.sequence % (std::int64_t{2} * out_.context) != 0)
      map_.optional("context")->fail(
          fmt::format("a sequence of {} does not divide into the two chunks a rank that context {} makes; expected a "
                      "multiple of {}",
                      training_.batch.sequence, out_.context, 2 * out_.context));
  }

  void check_expert() const {
    const Experts& experts = spec_->experts;
    for (const std::string_view key : {"expert", "expert_tensor"})
      if (const auto field = map_.optional(key); field && experts.count == 0)
        field->fail(fmt::format("'{}' divides routed experts, which this model does not have", key));
    if (experts.count == 0) return;
    if (out_.expert == 1) {
      if (out_.expert_tensor != out_.tensor)
        map_.optional("expert_tensor")
            ->fail(fmt::format(
                "'expert_tensor' {} differs from tensor {} where experts are not shared out; expected expert "
                "above 1",
                out_.expert_tensor, out_.tensor));
      return;
    }
    const Field field = *map_.optional("expert");
    divides("expert", experts.count, "experts", out_.expert);
    // parallel_state.py: the world's size by expert_tensor x expert x pipeline.
    const std::int64_t replicas = std::int64_t{out_.data} * out_.context;
    if (out_.expert_tensor == out_.tensor && replicas % out_.expert != 0)
      field.fail(
          fmt::format("experts are divided among the {} data and context ranks, which do not divide by expert {}",
                      replicas, out_.expert));
    const std::int64_t ranks = replicas * out_.tensor, parts = std::int64_t{out_.expert} * out_.expert_tensor;
    if (ranks % parts != 0)
      field.fail(
          fmt::format("experts are divided among the {} tensor, data and context ranks, which do not divide by expert "
                      "{} x expert_tensor {}",
                      ranks, out_.expert, out_.expert_tensor));
  }

  void check_data() const {
    // DeepSpeed runs zero1 on one rank as on several.
    if (out_.sharding > Sharding::zero1 && out_.data == 1)
      map_.optional("sharding")
          ->fail(fmt::format("sharding '{}' divides among data-parallel ranks; expected data above 1",
                             sharding_names[static_cast<std::size_t>(out_.sharding)]));
    if (!out_.distributed_optimizer) return;
    const Field field = *map_.optional("distributed_optimizer");
    if (out_.sharding != Sharding::none)
      field.fail(
          "'distributed_optimizer' and 'sharding' both say what data-parallel ranks divide; leave one of them out");
    if (training_.profile.loop != "megatron")
      field.fail(fmt::format("'distributed_optimizer' is Megatron-LM's; expected loop megatron, not {}",
                             training_.profile.loop));
  }

  /// Units are gathered by hooks of PyTorch's modules, which only its own runtimes and models' code have.
  void read_units() {
    const auto field = map_.optional("fsdp");
    out_.fsdp = read_fsdp(field ? &*field : nullptr, out_, training_);
    if (!gathers_units(out_)) return;
    const Field sharding = *map_.optional("sharding");
    const Profile& profile = training_.profile;
    if (!profile.runtime.starts_with("pytorch-"))
      sharding.fail(fmt::format("'{}' is PyTorch's; expected a runtime of PyTorch, not {}", sharding.value->text,
                                profile.runtime));
    if (profile.model_code != "huggingface" && profile.model_code != "torchtitan")
      sharding.fail(fmt::format("'{}' is for model code huggingface and torchtitan, not {}", sharding.value->text,
                                profile.model_code));
    for (const auto& [key, asked] : {std::pair("main_gradients", training_.dtypes.main_gradients.has_value()),
                                     std::pair("master", training_.dtypes.master.has_value())})
      if (asked)
        sharding.fail(fmt::format("'{}' shards parameters, gradients and states, but no {}; expected dtype.{} none",
                                  sharding.value->text, key, key));
  }

  /// DistributedDataParallel wraps modules of PyTorch's own runtimes.
  void read_replicas() {
    const auto field = map_.optional("ddp");
    Training training = training_;
    training.shards = out_;
    by_hooks_ = replicates_by_hooks(training);
    out_.ddp = read_ddp(field ? &*field : nullptr, by_hooks_);
    if (!by_hooks_) return;
    const Field data = *map_.optional("data");
    if (!training_.profile.runtime.starts_with("pytorch-"))
      data.fail(
          fmt::format("replicas of model code {} are PyTorch's DistributedDataParallel; expected a runtime of "
                      "PyTorch, not {}",
                      training_.profile.model_code, training_.profile.runtime));
    if (training_.dtypes.main_gradients)
      data.fail("DistributedDataParallel has no main gradients; leave dtype.main_gradients out");
  }

  void read_deepspeed() {
    const auto field = map_.optional("zero_optimization");
    out_.zero = read_zero_optimization(field ? &*field : nullptr, out_);
    if (!is_deepspeed(out_)) return;
    const Field sharding = *map_.optional("sharding");
    const std::string& name = sharding.value->text;
    const Profile& profile = training_.profile;
    if (!profile.runtime.starts_with("pytorch-"))
      sharding.fail(fmt::format("'{}' is DeepSpeed's; expected a runtime of PyTorch, not {}", name, profile.runtime));
    if (training_.optimizer.in_backward)
      sharding.fail(fmt::format("'{}' updates a rank's part at once, not in backward", name));
    if (training_.optimizer.kind != OptimizerKind::none && !training_.dtypes.master)
      sharding.fail(fmt::format("'{}' updates an fp32 copy of a rank's part; expected dtype.master float32", name));
    if (out_.sharding == Sharding::zero3 && profile.model_code != "huggingface" && profile.model_code != "torchtitan")
      sharding.fail(fmt::format("'{}' is for model code huggingface and torchtitan, not {}", name, profile.model_code));
    if (training_.dtypes.main_gradients)
      sharding.fail(fmt::format("'{}' has its own buffers of gradients; leave dtype.main_gradients out", name));
  }

  /// Why what is asked at `key` is not simulated; "" when it is.
  std::string unsimulated_tensor() const {
    const std::string& kernels = training_.profile.kernels;
    if (!megatron()) return fmt::format("model_code {}; with megatron it is", training_.profile.model_code);
    if (!kernels.starts_with("cuda-") && kernels != "transformer-engine")
      return fmt::format("kernels {}; with those of CUDA it is", kernels);
    // "sequence parallelism must be used" (megatron/core/transformer/moe/moe_layer.py).
    if (spec_->experts.count > 0 && !out_.sequence) return "routed experts without 'sequence'; with it they are";
    if (spec_->latent.kv_rank > 0 && !out_.sequence) return "latent attention without 'sequence'; with it it is";
    if (!spec_->causal) return "encoders";
    if (training_.lora.rank > 0) return "adapters";
    if (training_.loss.chunks > 1 || training_.loss.fused) return "a loss in chunks or fused with the head";
    return "";
  }

  /// Ranks pass keys and values around inside Transformer Engine's attention (TEDotProductAttention alone has
  /// cp_group).
  std::string unsimulated_context() const {
    const std::string& kernels = training_.profile.kernels;
    if (!megatron()) return fmt::format("model_code {}; with megatron it is", training_.profile.model_code);
    if (training_.profile.loop != "megatron")
      return fmt::format("loop {}; with megatron it is", training_.profile.loop);
    if (kernels != "transformer-engine") return fmt::format("kernels {}; with transformer-engine it is", kernels);
    if (!spec_->causal) return "encoders";
    if (spec_->attention != "flash" && spec_->attention != "fused")
      return fmt::format("attention {}; with flash and fused it is", spec_->attention);
    if (spec_->latent.kv_rank > 0 && spec_->attention == "flash")
      return "latent attention with flash; with fused it is";
    if (training_.dtypes.compute == DType::float32) return "attention in float32, which those kernels do not have";
    if (training_.lora.rank > 0) return "adapters";
    return "";
  }

  std::string unsimulated_expert() const {
    if (!megatron()) return fmt::format("model_code {}; with megatron it is", training_.profile.model_code);
    if (training_.profile.loop != "megatron")
      return fmt::format("loop {}; with megatron it is", training_.profile.loop);
    if (training_.lora.rank > 0) return "adapters";
    return "";
  }

  void refuse_unsimulated() const {
    if (const std::string what = unsimulated_context(); out_.context > 1 && !what.empty())
      map_.optional("context")->fail("'context' above 1 is not simulated for " + what);
    if (const std::string what = unsimulated_tensor(); out_.tensor > 1 && !what.empty())
      map_.optional("tensor")->fail("'tensor' above 1 is not simulated for " + what);
    if (const std::string what = unsimulated_expert(); out_.expert > 1 && !what.empty())
      map_.optional("expert")->fail("'expert' above 1 is not simulated for " + what);
    if (out_.data > 1 && training_.optimizer.in_backward)
      map_.optional("data")->fail("replicas of an optimizer that updates in backward are not simulated");
    if (out_.data > 1 && training_.profile.loop != "megatron" && out_.sharding == Sharding::none && !by_hooks_)
      map_.optional("data")->fail(
          fmt::format("'data' above 1 without 'sharding' is not simulated for loop {}; with megatron it is",
                      training_.profile.loop));
  }

  const YamlMap& map_;
  const TransformerSpec* spec_;
  const Training& training_;
  Shards out_;
  bool by_hooks_ = false;  // replicas under DistributedDataParallel
};

}  // namespace

Shards read_shards(const YamlMap& map, const TransformerSpec* transformer, const Training& training) {
  return ShardReader(map, transformer, training).read();
}

}  // namespace tidemark
