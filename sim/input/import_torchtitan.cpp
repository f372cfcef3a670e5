// torchtitan's TOML (torchtitan/config/job_config.py), and the sizes of the flavors it names.
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "import_frameworks.hpp"
#include "import_parts.hpp"
#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

/// A flavor's sizes as a scenario's model writes them (torchtitan/models/<name>/__init__.py).
struct Flavor {
  std::string_view model, name, sizes;
};

constexpr std::array<Flavor, 13> flavors = {{
    {"llama3", "8B",
     "model_type: llama, layers: 32, hidden: 4096, heads: 32, kv_heads: 8, ffn_hidden: 14336, vocab: 128256"},
    {"llama3", "70B",
     "model_type: llama, layers: 80, hidden: 8192, heads: 64, kv_heads: 8, ffn_hidden: 28672, vocab: 128256"},
    {"llama3", "405B",
     "model_type: llama, layers: 126, hidden: 16384, heads: 128, kv_heads: 8, ffn_hidden: 53248, vocab: 128256"},
    {"qwen3", "0.6B",
     "model_type: qwen3, layers: 28, hidden: 1024, heads: 16, kv_heads: 8, head_dim: 128, ffn_hidden: 3072, "
     "vocab: 151936, tied_embeddings: true"},
    {"qwen3", "1.7B",
     "model_type: qwen3, layers: 28, hidden: 2048, heads: 16, kv_heads: 8, head_dim: 128, ffn_hidden: 6144, "
     "vocab: 151936, tied_embeddings: true"},
    {"qwen3", "4B",
     "model_type: qwen3, layers: 36, hidden: 2560, heads: 32, kv_heads: 8, head_dim: 128, ffn_hidden: 9728, "
     "vocab: 151936, tied_embeddings: true"},
    {"qwen3", "8B",
     "model_type: qwen3, layers: 36, hidden: 4096, heads: 32, kv_heads: 8, head_dim: 128, ffn_hidden: 12288, "
     "vocab: 151936"},
    {"qwen3", "14B",
     "model_type: qwen3, layers: 40, hidden: 5120, heads: 40, kv_heads: 8, head_dim: 128, ffn_hidden: 17408, "
     "vocab: 151936"},
    {"qwen3", "32B",
     "model_type: qwen3, layers: 64, hidden: 5120, heads: 64, kv_heads: 8, head_dim: 128, ffn_hidden: 25600, "
     "vocab: 151936"},
    {"deepseek_v3", "16B",
     "model_type: deepseek_v2, layers: 27, hidden: 2048, heads: 16, kv_rank: 512, nope_dim: 128, rope_dim: 64, "
     "value_dim: 128, ffn_hidden: 10944, experts: 64, experts_per_token: 6, expert_hidden: 1408, "
     "shared_expert_hidden: 2816, dense_first: 1, vocab: 102400"},
    {"deepseek_v3", "236B",
     "model_type: deepseek_v2, layers: 60, hidden: 5120, heads: 128, query_rank: 1536, kv_rank: 512, nope_dim: 128, "
     "rope_dim: 64, value_dim: 128, ffn_hidden: 12288, experts: 160, experts_per_token: 6, expert_hidden: 1536, "
     "shared_expert_hidden: 3072, dense_first: 1, vocab: 102400"},
    {"deepseek_v3", "671B",
     "model_type: deepseek_v3, layers: 61, hidden: 7168, heads: 128, query_rank: 1536, kv_rank: 512, nope_dim: 128, "
     "rope_dim: 64, value_dim: 128, ffn_hidden: 18432, experts: 256, experts_per_token: 8, expert_hidden: 2048, "
     "shared_expert_hidden: 2048, dense_first: 3, vocab: 129280"},
    {"llama3", "debugmodel", "model_type: llama, layers: 6, hidden: 256, heads: 16, ffn_hidden: 768, vocab: 2048"},
}};

std::string_view sizes_of(const std::string& model, const std::string& flavor, const SourceLoc& where) {
  std::string known;
  for (const Flavor& one : flavors) {
    if (one.model == model && one.name == flavor) return one.sizes;
    known += (known.empty() ? "" : ", ") + std::string(one.model) + " " + std::string(one.name);
  }
  throw InputError(where, fmt::format("model '{}' of flavor '{}' is not known; known are {}", model, flavor, known));
}

/// One table of the file, or an empty one.
Settings table(const DocNode& root, std::string_view name) {
  static const DocNode empty = [] {
    DocNode node;
    node.kind = DocNode::Kind::map;
    return node;
  }();
  const DocPtr found = root.find(name);
  if (found && found->kind != DocNode::Kind::map)
    throw InputError(found->where(), fmt::format("'{}' must be a table, not {}", name, shown(*found)));
  return Settings(found ? *found : empty, "");
}

/// Every second product is kept beside attention (torchtitan/distributed/activation_checkpoint.py: aten.mm, which is
/// what a linear without a bias calls, odd ones saved).
std::string checkpoint_policy(Settings& settings) {
  const std::string mode = settings.text("mode", "selective");
  const std::string option = settings.text("selective_ac_option", "2");
  if (mode == "none" || mode == "full") return mode;
  if (mode != "selective")
    throw InputError(settings.where("mode"),
                     fmt::format("mode '{}' is not known; known are none, full, selective", mode));
  if (option == "op") return "{kind: selective, keep: [attention, linear/2+1]}";
  if (option.empty() || option.find_first_not_of("0123456789") != std::string::npos || option == "0")
    throw InputError(settings.where("selective_ac_option"),
                     fmt::format("selective_ac_option '{}' is not known; known are op, and numbers from 1", option));
  return option == "1" ? "full" : "{kind: selective, every: " + option + "}";
}

void name_what_is_left(const DocNode& root, ImportedScenario& out) {
  constexpr std::array<std::string_view, 9> harmless = {
      "job", "profiling", "metrics", "lr_scheduler", "checkpoint", "validation", "comm", "debug", "fault_tolerance"};
  constexpr std::array<std::string_view, 6> read = {"model",       "optimizer", "training", "activation_checkpoint",
                                                    "parallelism", "compile"};
  for (const DocEntry& entry : root.entries) {
    const std::string& name = entry.key->text;
    if (std::ranges::find(harmless, name) == harmless.end() && std::ranges::find(read, name) == read.end())
      out.unused.push_back("[" + name + "]");
  }
}

}  // namespace

ImportedScenario import_torchtitan(const DocNode& root) {
  ImportedScenario out;
  out.framework = "torchtitan";
  Settings model = table(root, "model"), training = table(root, "training");
  Settings optimizer = table(root, "optimizer"), checkpoint = table(root, "activation_checkpoint");
  Settings parallel = table(root, "parallelism"), compile = table(root, "compile");
  const std::string name = model.text("name", "llama3"), flavor = model.text("flavor", "debugmodel");
  const std::int64_t sequence = training.integer("seq_len", 2048);
  FlowBlock batch;
  batch.add("size", training.integer("local_batch_size", training.integer("batch_size", 8)));
  batch.add("sequence", sequence);
  const std::string kind = optimizer.text("name", "AdamW");
  if (kind != "AdamW" && kind != "Adam")
    throw InputError(optimizer.where("name"), fmt::format("optimizer '{}' is not modelled; Adam and AdamW are", kind));
  const std::string implementation = optimizer.text("implementation", "fused");
  FlowBlock step;
  step.add("kind", kind == "AdamW" ? "adamw" : "adam");
  if (implementation == "fused") step.add("fused", "true");
  if (implementation == "for-loop") step.add("multi_tensor", "false");
  const std::string norm = training.decimal("max_norm", "1.0");
  if (norm.find_first_not_of("0.") != std::string::npos) step.add("clip_grad_norm", norm);
  const auto dtype_of = [&](std::string_view key, const char* fallback) {
    std::string given = training.text(key, fallback);
    if (given != "float32" && given != "bfloat16" && given != "float16")
      throw InputError(training.where(key), fmt::format("'training.{}' must be float32, bfloat16 or float16, not '{}'",
                                                        key, shown(std::string_view(given))));
    return given;
  };
  const std::string compute = dtype_of("mixed_precision_param", "bfloat16");
  FlowBlock dtype;
  dtype.add("parameters", dtype_of("dtype", "float32"));
  if (compute != "float32") dtype.add("autocast", compute);
  out.scenario = fmt::format(
      "profile: torchtitan\nmodel: {{family: transformer, {}, max_positions: {}, attention: sdpa}}\nbatch: {}\n"
      "dtype: {}\noptimizer: {}\npolicy: {}\n",
      sizes_of(name, flavor, model.where("flavor")), sequence, batch.text(), dtype.text(), step.text(),
      checkpoint_policy(checkpoint));
  out.notes.emplace_back("weights are cast by autocast, as torchtitan does on one device without FSDP");
  model.pass_over({"hf_assets_path", "tokenizer_path", "print_after_conversion"});
  training.pass_over({"steps", "dataset", "dataset_path", "seed", "deterministic", "gc_freq", "gc_debug",
                      "global_batch_size", "mixed_precision_reduce", "enable_cpu_offload"});
  optimizer.pass_over({"lr", "eps", "beta1", "beta2", "weight_decay", "early_step_in_backward"});
  checkpoint.pass_over({"preserve_rng_state"});
  if (compile.flag("enable")) out.unused.emplace_back("compile.enable: true (ops are eager here)");
  compile.pass_over({"components", "model", "loss", "backend"});
  for (const std::string_view degree : {"data_parallel_replicate_degree", "data_parallel_shard_degree",
                                        "tensor_parallel_degree", "pipeline_parallel_degree", "context_parallel_degree",
                                        "expert_parallel_degree", "expert_tensor_parallel_degree"}) {
    const std::string value = parallel.text(degree, "1");
    if (value != "1")
      out.unused.push_back(fmt::format("parallelism.{}: {} (the scenario is of one device)", degree, value));
  }
  const std::pair<std::string_view, Settings*> tables[] = {
      {"model", &model},          {"training", &training},
      {"optimizer", &optimizer},  {"activation_checkpoint", &checkpoint},
      {"parallelism", &parallel}, {"compile", &compile}};
  for (const auto& [table_name, settings] : tables)
    for (const std::string& left : settings->left()) out.unused.push_back(std::string(table_name) + "." + left);
  name_what_is_left(root, out);
  return out;
}

}  // namespace tidemark
