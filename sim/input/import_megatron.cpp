// Megatron-LM's arguments (megatron/training/arguments.py), with the defaults they have there.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "import_frameworks.hpp"
#include "import_parts.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/input/quantities.hpp"
#include "tidemark/plan/discards.hpp"

namespace tidemark {
namespace {

/// The arguments of one run, on their way into a scenario.
class Megatron {
 public:
  Megatron(const DocNode& arguments, std::optional<std::int64_t> vocabulary)
      : arguments_(arguments), settings_(arguments, "--"), vocabulary_(vocabulary) {}

  ImportedScenario import() {
    refuse_unmodelled();
    const std::string model = this->model().text();
    const std::string batch = this->batch().text();
    const std::string dtype = this->dtype().text();
    const std::string policy = this->policy();
    out_.framework = "Megatron-LM";
    out_.scenario = fmt::format("profile: megatron\nmodel: {}\nbatch: {}\ndtype: {}\noptimizer: {}\npolicy: {}\n",
                                model, batch, dtype, optimizer(), policy);
    if (const FlowBlock ranks = parallel(); !ranks.empty())
      out_.scenario += fmt::format("parallel: {}\n", ranks.text());
    pass_over_the_rest();
    for (std::string& left : settings_.left()) out_.unused.push_back(std::move(left));
    return std::move(out_);
  }

 private:
  std::int64_t needed(std::string_view name) {
    const std::int64_t value = settings_.integer(name, 0);
    if (value == 0) throw InputError(arguments_.where(), fmt::format("missing '--{}'", name));
    return value;
  }

  /// Settings that change sizes in ways no rule here knows.
  void refuse_unmodelled() {
    constexpr std::array<std::string_view, 7> unmodelled = {"multi-latent-attention",
                                                            "fp8-format",
                                                            "fp16-lm-cross-entropy",
                                                            "mtp-num-layers",
                                                            "window-size",
                                                            "spec",
                                                            "squared-relu"};
    for (const std::string_view name : unmodelled)
      if (settings_.find(name))
        throw InputError(settings_.where(name), fmt::format("'--{}' changes sizes and is not modelled", name));
  }

  /// arguments.py: 4 h, or with SwiGLU two thirds of it, down to a multiple of 64.
  std::int64_t default_ffn(std::int64_t hidden, bool gated) { return gated ? hidden * 8 / 3 / 64 * 64 : 4 * hidden; }

  FlowBlock model() {
    FlowBlock model;
    model.add("family", "transformer");
    const bool gated = settings_.flag("swiglu");
    const std::string positions = settings_.text("position-embedding-type", "learned_absolute");
    const bool rotary = positions == "rope" || settings_.flag("use-rotary-position-embeddings");
    const std::string normalization = settings_.text("normalization", "LayerNorm");
    if (normalization != "LayerNorm" && normalization != "RMSNorm")
      throw InputError(settings_.where("normalization"),
                       fmt::format("normalization '{}' is not known; known are LayerNorm, RMSNorm", normalization));
    if (positions != "rope" && positions != "learned_absolute")
      throw InputError(settings_.where("position-embedding-type"),
                       fmt::format("positions '{}' are not modelled; learned_absolute and rope are", positions));
    const std::int64_t experts = settings_.integer("num-experts", 0);
    const bool grouped = settings_.flag("group-query-attention");
    const std::int64_t channels = settings_.integer("kv-channels", 0);
    const bool as_gpt2 = !rotary && !grouped && channels == 0;
    model.add("model_type", experts > 0 ? "qwen2_moe" : as_gpt2 ? "gpt2" : "llama");
    const std::int64_t hidden = needed("hidden-size"), heads = needed("num-attention-heads");
    model.add("layers", needed("num-layers"));
    model.add("hidden", hidden);
    model.add("heads", heads);
    const std::int64_t groups = settings_.integer("num-query-groups", 1);
    model.add("kv_heads", grouped ? groups : heads);
    if (channels > 0) model.add("head_dim", channels);
    const std::int64_t ffn = settings_.integer("ffn-hidden-size", default_ffn(hidden, gated));
    model.add("ffn_hidden", ffn);
    model.add("vocab", padded_vocabulary());
    const std::int64_t sequence = needed("seq-length");
    model.add("max_positions", settings_.integer("max-position-embeddings", sequence));
    model.add("norm", normalization == "RMSNorm" ? "rms" : "layer");
    model.add("positions", rotary ? "rotary" : "learned");
    model.add("gated_ffn", gated ? "true" : "false");
    model.add("activation", gated ? "silu" : "gelu");
    const bool bias = !settings_.flag("disable-bias-linear");
    model.add("qkv_bias", bias || settings_.flag("add-qkv-bias") ? "true" : "false");
    model.add("projection_bias", bias ? "true" : "false");
    model.add("ffn_bias", bias && experts == 0 ? "true" : "false");
    model.add("qk_norm", settings_.flag("qk-layernorm") ? "true" : "false");
    model.add("tied_embeddings", settings_.flag("untie-embeddings-and-output-weights") ? "false" : "true");
    const std::string hidden_dropout = settings_.decimal("hidden-dropout", "0.1");
    model.add("embedding_dropout", hidden_dropout);
    model.add("residual_dropout", hidden_dropout);
    model.add("attention_dropout", settings_.decimal("attention-dropout", "0.1"));
    if (experts > 0) add_experts(model, experts, ffn);
    model.add("attention", attention());
    return model;
  }

  /// An expert is as wide as the feed-forward part where nothing else is said (arguments.py, validate_args).
  void add_experts(FlowBlock& model, std::int64_t experts, std::int64_t ffn) {
    model.add("experts", experts);
    model.add("experts_per_token", settings_.integer("moe-router-topk", 2));
    model.add("expert_hidden", settings_.integer("moe-ffn-hidden-size", ffn));
    model.add("shared_expert_hidden", settings_.integer("moe-shared-expert-intermediate-size", 0));
    model.add("shared_expert_gate", settings_.flag("moe-shared-expert-gate") ? "true" : "false");
    const std::string capacity = settings_.decimal("moe-expert-capacity-factor", "");
    if (!capacity.empty()) model.add("capacity_factor", capacity);
    if (settings_.flag("moe-pad-expert-input-to-capacity")) model.add("pad_to_capacity", "true");
    out_.notes.emplace_back("experts get even shares of the rows; set model.imbalance for a measured load");
  }

  /// tokenizer/tokenizer.py, _vocab_size_with_padding: up to a multiple of 128 times the tensor-parallel size.
  std::int64_t padded_vocabulary() {
    const std::int64_t given = settings_.integer("vocab-size", 0);
    const std::int64_t divisor =
        settings_.integer("make-vocab-size-divisible-by", 128) * settings_.integer("tensor-model-parallel-size", 1);
    const std::int64_t words = vocabulary_.value_or(given);
    if (words <= 0)
      throw InputError(arguments_.where(),
                       "the vocabulary's size is in another file; give it by --vocab (GPT-2's is 50257)");
    if (divisor <= 0) throw InputError(arguments_.where(), "'--make-vocab-size-divisible-by' must be positive");
    const std::int64_t padded = (words + divisor - 1) / divisor * divisor;
    if (padded != words)
      out_.notes.push_back(
          fmt::format("the vocabulary of {} is padded to {}, a multiple of {}", words, padded, divisor));
    return padded;
  }

  std::string attention() {
    const std::string backend = settings_.text("attention-backend", "auto");
    const bool flash = settings_.flag("use-flash-attn");
    if (backend == "unfused" || backend == "local") return "eager";
    if (backend == "fused") return "fused";
    if (backend == "auto" && !flash) out_.notes.emplace_back("attention-backend auto is taken as flash");
    return "flash";
  }

  FlowBlock batch() {
    FlowBlock batch;
    const std::int64_t micro = needed("micro-batch-size");
    batch.add("size", micro);
    batch.add("sequence", needed("seq-length"));
    const std::int64_t global = settings_.integer("global-batch-size", 0);
    if (global > micro)
      out_.notes.push_back(
          fmt::format("global-batch-size {} over micro-batch-size {} and the data-parallel ranks is "
                      "batch.accumulate, or of a pipeline parallel.micro_batches; with 1 rank {}",
                      global, micro, global / micro));
    return batch;
  }

  /// bf16 accumulates gradients in fp32 main gradients (arguments.py sets accumulate_allreduce_grads_in_fp32).
  FlowBlock dtype() {
    FlowBlock dtype;
    const bool bf16 = settings_.flag("bf16"), fp16 = settings_.flag("fp16");
    if (!bf16 && !fp16) {
      dtype.add("parameters", "float32");
      return dtype;
    }
    const std::string half = bf16 ? "bfloat16" : "float16";
    dtype.add("parameters", half);
    dtype.add("compute", half);
    const bool wide = bf16 || settings_.flag("accumulate-allreduce-grads-in-fp32");
    dtype.add("main_gradients", wide ? "float32" : half);
    dtype.add("master", "float32");
    return dtype;
  }

  std::string optimizer() {
    const std::string name = settings_.text("optimizer", "adam");
    const std::string norm = settings_.decimal("clip-grad", "1.0");
    const bool clips = norm.find_first_not_of("0.") != std::string::npos;
    const std::string clipping = clips ? ", clip_grad_norm: " + norm : "";
    if (name == "adam") return "{kind: adam, fused: true" + clipping + "}";
    if (name == "sgd") return "{kind: sgd" + clipping + "}";
    throw InputError(settings_.where("optimizer"),
                     fmt::format("optimizer '{}' is not modelled; adam and sgd are", name));
  }

  std::string policy() {
    const std::string granularity = settings_.text("recompute-granularity", "");
    const std::string method = settings_.text("recompute-method", "uniform");
    const std::int64_t layers = settings_.integer("recompute-num-layers", 1);
    if (granularity.empty()) return settings_.flag("recompute-activations") ? selective({"core_attn"}) : "none";
    if (granularity == "selective") return selective(modules());
    if (granularity != "full")
      throw InputError(settings_.where("recompute-granularity"),
                       fmt::format("recompute-granularity '{}' is not known; known are full, selective", granularity));
    if (method == "uniform" && layers == 0)
      throw InputError(settings_.where("recompute-num-layers"),
                       "'--recompute-num-layers' must be at least 1 with method uniform, not 0");
    if (layers == 0) return "none";
    if (method == "uniform") return layers == 1 ? "full" : fmt::format("{{kind: interval, interval: {}}}", layers);
    if (method == "block") return fmt::format("{{kind: block, layers: {}}}", layers);
    throw InputError(settings_.where("recompute-method"),
                     fmt::format("recompute-method '{}' is not known; known are uniform, block", method));
  }

  /// One name, or a list of them.
  std::vector<std::string> modules() {
    const DocPtr given = settings_.find("recompute-modules");
    if (!given) return {"core_attn"};
    std::vector<std::string> out;
    const auto add = [&](const DocNode& node) {
      std::string word;
      for (const char c : node.text + " ")
        if (c != ' ' && c != ',')
          word += c;
        else if (!word.empty())
          out.push_back(std::exchange(word, ""));
    };
    if (given->kind == DocNode::Kind::list)
      for (const DocPtr& item : given->items) add(*item);
    else
      add(*given);
    return out;
  }

  /// A layer with experts has no `mlp`, one without no `moe`: both are what stands under "mlp" here.
  std::string selective(const std::vector<std::string>& names) {
    constexpr std::array<std::string_view, 7> modules_known = {"core_attn", "mlp",     "moe",        "shared_experts",
                                                               "layernorm", "moe_act", "mla_up_proj"};
    const bool experts = settings_.integer("num-experts", 0) > 0;
    std::vector<std::string> again, discarded;
    for (const std::string& name : names) {
      if (std::ranges::find(modules_known, name) == modules_known.end())
        throw InputError(settings_.where("recompute-modules"),
                         fmt::format("recompute module '{}' is not known; known are {}", name,
                                     joined({modules_known.begin(), modules_known.end()})));
      const bool of_experts = name == "moe" || name == "shared_experts" || name == "moe_act";
      const bool absent = name == "mla_up_proj" || (experts ? name == "mlp" : of_experts);
      if (absent)
        out_.unused.push_back("--recompute-modules: " + name + " (the model has none)");
      else if (std::ranges::find(discarding_modules, name) != discarding_modules.end())
        discarded.push_back(name);
      else
        again.push_back(name == "moe" ? "mlp" : name);
    }
    if (again.empty() && discarded.empty()) return "none";
    std::string out = "{kind: selective";
    if (!again.empty()) out += ", recompute: [" + joined(again) + "]";
    if (!discarded.empty()) out += ", discard: [" + joined(discarded) + "]";
    return out + "}";
  }

  /// Degrees of one rank. How many replicas there are is not among the arguments: it is what the job's ranks leave.
  FlowBlock parallel() {
    FlowBlock out;
    const std::int64_t experts = settings_.integer("num-experts", 0);
    const std::int64_t tensor = settings_.integer("tensor-model-parallel-size", 1);
    if (tensor > 1 && experts > 0) {
      out_.unused.push_back(fmt::format("--tensor-model-parallel-size: {} (not simulated with experts)", tensor));
    } else if (tensor > 1) {
      out.add("tensor", tensor);
      out.add_if(settings_.flag("sequence-parallel"), "sequence", "true");
    }
    add_context(out);
    add_stages(out);
    if (settings_.flag("use-distributed-optimizer")) {
      out.add("distributed_optimizer", "true");
      out_.notes.emplace_back("the optimizer's states are divided among replicas; set parallel.data to their number");
    }
    if (const std::int64_t degree = settings_.integer("expert-model-parallel-size", 1); degree > 1)
      out_.unused.push_back(fmt::format("--expert-model-parallel-size: {} (not simulated)", degree));
    return out;
  }

  /// The kernels that divide a sequence are fused ones, of 16 bit.
  void add_context(FlowBlock& out) {
    const std::int64_t context = settings_.integer("context-parallel-size", 1);
    const std::string exchange = settings_.text("cp-comm-type", "p2p");
    if (context == 1) return;
    const bool fused = settings_.text("attention-backend", "auto") != "unfused";
    if (fused && (settings_.flag("bf16") || settings_.flag("fp16")))
      out.add("context", context);
    else
      out_.unused.push_back(
          fmt::format("--context-parallel-size: {} (not simulated without fused attention)", context));
    if (exchange != "p2p")
      out_.unused.push_back(fmt::format("--cp-comm-type: {} (keys go round, as with p2p)", exchange));
  }

  void add_stages(FlowBlock& out) {
    const std::int64_t stages = settings_.integer("pipeline-model-parallel-size", 1);
    if (stages <= 1) return;
    const std::int64_t layers = needed("num-layers");
    const std::int64_t per_chunk = settings_.integer("num-layers-per-virtual-pipeline-stage", 0);
    const std::int64_t chunks =
        per_chunk > 0 ? layers / (stages * per_chunk) : settings_.integer("num-virtual-stages-per-pipeline-rank", 1);
    out.add("pipeline", stages);
    if (chunks > 1) out.add("virtual", chunks);
    out.add("micro_batches",
            std::max<std::int64_t>(1, settings_.integer("global-batch-size", 0) / needed("micro-batch-size")));
  }

  /// Logging, data, schedules of the learning rate, files: nothing of a step's memory.
  void pass_over_the_rest() {
    if (settings_.text("transformer-impl", "transformer_engine") != "transformer_engine")
      out_.unused.emplace_back("--transformer-impl: local (kernels are Transformer Engine's here)");
    settings_.pass_over_prefixed({"log-",
                                  "lr",
                                  "min-lr",
                                  "save",
                                  "load",
                                  "data-path",
                                  "data-cache",
                                  "eval-",
                                  "tensorboard",
                                  "wandb",
                                  "ckpt",
                                  "dist-ckpt",
                                  "timing-",
                                  "no-load",
                                  "no-save",
                                  "exit-",
                                  "tokenizer",
                                  "train-",
                                  "split",
                                  "vocab-file",
                                  "merge-file",
                                  "mock-data",
                                  "weight-decay",
                                  "adam-",
                                  "seed",
                                  "init-method",
                                  "distributed-",
                                  "num-workers",
                                  "no-mmap",
                                  "async-save",
                                  "rotary-base",
                                  "use-persistent",
                                  "deterministic",
                                  "attention-softmax-in-fp32",
                                  "no-bias-gelu",
                                  "norm-epsilon",
                                  "moe-aux-loss",
                                  "moe-router-load",
                                  "moe-z-loss",
                                  "moe-router-dtype",
                                  "loss-scale",
                                  "initial-loss",
                                  "check-",
                                  "rerun",
                                  "profile",
                                  "use-mcore-models",
                                  "manual-gc",
                                  "legacy",
                                  "apply-layernorm-1p",
                                  "disable-bias-linear",
                                  "use-checkpoint",
                                  "no-create",
                                  "dataloader",
                                  "enable-"});
  }

  const DocNode& arguments_;
  Settings settings_;
  std::optional<std::int64_t> vocabulary_;
  ImportedScenario out_;
};

}  // namespace

ImportedScenario import_megatron(const DocNode& root, std::optional<std::int64_t> vocabulary) {
  return Megatron(root, vocabulary).import();
}

}  // namespace tidemark
