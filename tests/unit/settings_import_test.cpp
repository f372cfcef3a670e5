// Does a framework's file become the scenario it means, and is what it leaves out said?
#include "tidemark/input/settings_import.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tidemark/base/errors.hpp"
#include "tidemark/input/scenario.hpp"

using namespace tidemark;

namespace {

class TempSettings {
 public:
  TempSettings(const std::string& name, const std::string& text) : path_(directory_ / name) {
    std::filesystem::create_directories(directory_);
    std::ofstream(path_) << text;
  }
  ~TempSettings() { std::filesystem::remove_all(directory_); }
  TempSettings(const TempSettings&) = delete;
  TempSettings& operator=(const TempSettings&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path directory_ = std::filesystem::temp_directory_path() / "tidemark_import_test";
  std::filesystem::path path_;
};

const std::string sizes = R"(  --num-layers: 12
  --hidden-size: 512
  --num-attention-heads: 8
  --seq-length: 1024
  --micro-batch-size: 4
)";

std::string megatron(const std::string& more, bool with_vocab = true) {
  return "MODEL_ARGS:\n" + sizes + (with_vocab ? "  --vocab-size: 50257\n" : "") + more;
}

ImportedScenario imported(const std::string& name, const std::string& text) {
  const TempSettings file(name, text);
  return import_settings(file.path());
}

std::string error_of(const std::string& name, const std::string& text) {
  const TempSettings file(name, text);
  try {
    import_settings(file.path());
  } catch (const InputError& error) {
    const std::string what = error.what();
    return what.starts_with(file.path()) ? name + what.substr(file.path().size()) : what;
  }
  return "";
}

TransformerSpec spec_of(const ImportedScenario& from) {
  return std::get<TransformerSpec>(parse_scenario(from.scenario, "imported.yaml").model);
}

}  // namespace

TEST_CASE("import: Megatron's GPT with its defaults") {
  const ImportedScenario out =
      imported("run.yaml", megatron("  --bf16: true\n  --lr: 0.1\n  --sequence-parallel: true\n"));
  CHECK(out.framework == "Megatron-LM");
  CHECK(out.unused == std::vector<std::string>{"--sequence-parallel: true"});
  const Scenario scenario = parse_scenario(out.scenario, "imported.yaml");
  const TransformerSpec& spec = std::get<TransformerSpec>(scenario.model);
  CHECK(spec.model_type == "gpt2");
  CHECK(spec.ffn_hidden == 2048);
  CHECK(spec.vocab == 50304);  // padded to a multiple of 128
  CHECK(spec.tied_embeddings);
  CHECK(spec.attention_dropout == 0.1);
  CHECK(scenario.training.dtypes.main_gradients == DType::float32);
  CHECK(scenario.training.optimizer.kind == OptimizerKind::adam);
  CHECK(scenario.training.batch.size == 4);
}

TEST_CASE("import: what each argument means") {
  struct Case {
    std::string name, more;
    bool (*holds)(const TransformerSpec&);
  };
  const Case cases[] = {
      {"SwiGLU without a width: two thirds of 4 h, down to 64", "  --swiglu: true\n",
       [](const TransformerSpec& m) { return m.gated_ffn && m.activation == "silu" && m.ffn_hidden == 1344; }},
      {"rope and RMS norms", "  --position-embedding-type: rope\n  --normalization: RMSNorm\n",
       [](const TransformerSpec& m) { return m.rotary && m.rms_norm && m.model_type == "llama"; }},
      {"rope and layer norms", "  --position-embedding-type: rope\n",
       [](const TransformerSpec& m) { return m.rotary && !m.rms_norm; }},
      {"grouped queries", "  --group-query-attention: true\n  --num-query-groups: 2\n",
       [](const TransformerSpec& m) { return m.kv_heads == 2; }},
      {"a group count without the switch means nothing", "  --num-query-groups: 2\n",
       [](const TransformerSpec& m) { return m.kv_heads == 8; }},
      {"no biases but of q, k and v", "  --disable-bias-linear: true\n  --add-qkv-bias: true\n",
       [](const TransformerSpec& m) { return m.qkv_bias && !m.projection_bias && !m.ffn_bias; }},
      {"the vocabulary's padding times the tensor-parallel size", "  --tensor-model-parallel-size: 8\n",
       [](const TransformerSpec& m) { return m.vocab == 51200; }},
      {"experts", "  --num-experts: 8\n  --moe-ffn-hidden-size: 96\n  --moe-expert-capacity-factor: 1.25\n",
       [](const TransformerSpec& m) {
         return m.experts.count == 8 && m.experts.per_token == 2 && m.experts.hidden == 96 &&
                m.experts.capacity_factor == Ratio{125, 100} && !m.ffn_bias;
       }},
      {"experts as wide as the feed-forward part", "  --num-experts: 8\n",
       [](const TransformerSpec& m) { return m.experts.hidden == 2048; }},
      {"unfused attention", "  --attention-backend: unfused\n",
       [](const TransformerSpec& m) { return m.attention == "eager"; }},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(c.holds(spec_of(imported("run.yaml", megatron(c.more)))));
  }
}

TEST_CASE("import: Megatron's degrees of one rank") {
  struct Case {
    std::string name, more, parallel;
  };
  const Case cases[] = {
      {"one device", "", ""},
      {"tensor ranks", "  --tensor-model-parallel-size: 2\n", "parallel: {tensor: 2}\n"},
      {"that share tokens", "  --tensor-model-parallel-size: 2\n  --sequence-parallel: true\n",
       "parallel: {tensor: 2, sequence: true}\n"},
      {"stages", "  --pipeline-model-parallel-size: 2\n  --global-batch-size: 32\n",
       "parallel: {pipeline: 2, micro_batches: 8}\n"},
      {"chunks by their layers",
       "  --pipeline-model-parallel-size: 2\n  --num-layers-per-virtual-pipeline-stage: 3\n  --global-batch-size: 32\n",
       "parallel: {pipeline: 2, virtual: 2, micro_batches: 8}\n"},
      {"ranks that divide sequences", "  --context-parallel-size: 2\n  --bf16: true\n", "parallel: {context: 2}\n"},
      {"divided states", "  --use-distributed-optimizer: true\n", "parallel: {distributed_optimizer: true}\n"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const ImportedScenario out = imported("run.yaml", megatron(c.more));
    const std::size_t at = out.scenario.find("parallel: ");
    CHECK((at == std::string::npos ? "" : out.scenario.substr(at)) == c.parallel);
    CHECK_NOTHROW(parse_scenario(out.scenario, "imported.yaml"));
    CHECK(out.unused.empty());
  }
  CHECK(imported("run.yaml", megatron("  --context-parallel-size: 2\n  --bf16: true\n  --attention-backend: unfused\n"))
            .unused == std::vector<std::string>{"--context-parallel-size: 2 (not simulated without fused attention)"});
  CHECK(
      imported("run.yaml", megatron("  --context-parallel-size: 2\n  --bf16: true\n  --cp-comm-type: a2a\n")).unused ==
      std::vector<std::string>{"--cp-comm-type: a2a (keys go round, as with p2p)"});
}

TEST_CASE("import: clipping") {
  const auto optimizer = [](const std::string& file, const std::string& text) {
    const std::string scenario = imported(file, text).scenario;
    const std::size_t begin = scenario.find("optimizer: ");
    return scenario.substr(begin, scenario.find('\n', begin) - begin);
  };
  CHECK(optimizer("run.yaml", megatron("")) == "optimizer: {kind: adam, fused: true, clip_grad_norm: 1.0}");
  CHECK(optimizer("run.yaml", megatron("  --clip-grad: 0.0\n")) == "optimizer: {kind: adam, fused: true}");
  CHECK(optimizer("run.yaml", megatron("  --clip-grad: 0.5\n  --optimizer: sgd\n")) ==
        "optimizer: {kind: sgd, clip_grad_norm: 0.5}");
  CHECK(optimizer("run.toml", "[model]\n[training]\nmax_norm = 0.25\n") ==
        "optimizer: {kind: adamw, fused: true, clip_grad_norm: 0.25}");
  const std::string tables = "[model]\n[training]\n[optimizer]\n";
  CHECK(optimizer("run.toml", tables + "implementation = \"for-loop\"\n") ==
        "optimizer: {kind: adamw, multi_tensor: false, clip_grad_norm: 1.0}");
  CHECK(optimizer("run.toml", tables + "name = \"Adam\"\nimplementation = \"foreach\"\n") ==
        "optimizer: {kind: adam, clip_grad_norm: 1.0}");
}

TEST_CASE("import: Megatron's recompute arguments as policies") {
  struct Case {
    std::string name, more, policy;
  };
  const Case cases[] = {
      {"none", "", "policy: none"},
      {"the old switch", "  --recompute-activations: true\n", "policy: {kind: selective, recompute: [core_attn]}"},
      {"every block", "  --recompute-granularity: full\n", "policy: full"},
      {"groups", "  --recompute-granularity: full\n  --recompute-num-layers: 3\n",
       "policy: {kind: interval, interval: 3}"},
      {"the first ones", "  --recompute-granularity: full\n  --recompute-method: block\n  --recompute-num-layers: 5\n",
       "policy: {kind: block, layers: 5}"},
      {"none of them", "  --recompute-granularity: full\n  --recompute-method: block\n  --recompute-num-layers: 0\n",
       "policy: none"},
      {"modules in one text", "  --recompute-granularity: selective\n  --recompute-modules: core_attn mlp\n",
       "policy: {kind: selective, recompute: [core_attn, mlp]}"},
      {"modules as a list",
       "  --num-experts: 8\n  --recompute-granularity: selective\n  --recompute-modules: [moe, shared_experts]\n",
       "policy: {kind: selective, recompute: [mlp, shared_experts]}"},
      {"modules that discard their output",
       "  --num-experts: 8\n  --recompute-granularity: selective\n  --recompute-modules: [core_attn, moe_act, "
       "layernorm]\n",
       "policy: {kind: selective, recompute: [core_attn], discard: [moe_act, layernorm]}"},
      {"discarding modules alone", "  --recompute-granularity: selective\n  --recompute-modules: layernorm\n",
       "policy: {kind: selective, discard: [layernorm]}"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(imported("run.yaml", megatron(c.more)).scenario.find(c.policy + "\n") != std::string::npos);
  }
  const ImportedScenario absent = imported(
      "run.yaml", megatron("  --recompute-granularity: selective\n  --recompute-modules: [moe, moe_act, mlp]\n"));
  CHECK(absent.unused == std::vector<std::string>{"--recompute-modules: moe (the model has none)",
                                                  "--recompute-modules: moe_act (the model has none)"});
  CHECK(absent.scenario.find("policy: {kind: selective, recompute: [mlp]}\n") != std::string::npos);
}

TEST_CASE("import: torchtitan") {
  const std::string model = "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nseq_len = 4096\n";
  const ImportedScenario out = imported(
      "run.toml", model +
                      "local_batch_size = 2\n[optimizer]\nname = \"AdamW\"\n[activation_checkpoint]\nmode = "
                      "\"selective\"\nselective_ac_option = \"op\"\n[parallelism]\ntensor_parallel_degree = 8\n");
  CHECK(out.framework == "torchtitan");
  CHECK(parameter_count(spec_of(out)) == 8'030'261'248);
  CHECK(out.scenario.find("policy: {kind: selective, keep: [core_attn.attention, linear/2+1]}\n") != std::string::npos);
  CHECK(out.scenario.find("batch: {size: 2, sequence: 4096}") != std::string::npos);
  CHECK(out.unused ==
        std::vector<std::string>{"parallelism.tensor_parallel_degree: 8 (the scenario is of one device)"});
  const ImportedScenario misspelt =
      imported("run.toml", model + "[parallelism]\ntensor_paralel_degree = 8\n[compile]\nenabel = true\n");
  CHECK(misspelt.unused == std::vector<std::string>{"parallelism.tensor_paralel_degree: 8", "compile.enabel: true"});
  const auto policy = [&](const std::string& settings) {
    const std::string text = imported("run.toml", model + "[activation_checkpoint]\n" + settings).scenario;
    return text.substr(text.find("policy: "));
  };
  CHECK(policy("mode = \"none\"\n") == "policy: none\n");
  CHECK(policy("mode = \"selective\"\nselective_ac_option = \"3\"\n") == "policy: {kind: selective, every: 3}\n");
  CHECK(policy("mode = \"selective\"\nselective_ac_option = \"1\"\n") == "policy: full\n");
}

TEST_CASE("import: every flavor of torchtitan is a model, with the published number of parameters where there is one") {
  struct Case {
    std::string name, flavor;
    std::int64_t parameters;
  };
  const Case cases[] = {
      {"llama3", "70B", 70'553'706'496},      {"llama3", "405B", 405'853'388'800},
      {"qwen3", "0.6B", 596'049'920},         {"qwen3", "8B", 8'190'735'360},
      {"qwen3", "1.7B", 1'720'574'976},       {"qwen3", "4B", 4'022'468'096},
      {"qwen3", "14B", 14'768'307'200},       {"qwen3", "32B", 32'762'123'264},
      {"deepseek_v3", "16B", 15'706'484'224}, {"deepseek_v3", "671B", 671'026'404'352},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name + " " + c.flavor);
    const std::string text =
        "[model]\nname = \"" + c.name + "\"\nflavor = \"" + c.flavor + "\"\n[training]\nseq_len = 64\n";
    CHECK(parameter_count(spec_of(imported("run.toml", text))) == c.parameters);
  }
}

TEST_CASE("import: what is refused") {
  struct Case {
    std::string name, file, text, error;
  };
  const Case cases[] = {
      {"another framework", "run.yaml", "model:\n  config: x\n",
       "run.yaml:1:1: error: settings of no framework that is known: expected Megatron-LM's MODEL_ARGS or torchtitan's "
       ".toml"},
      {"no map", "run.yaml", "- 1\n",
       "run.yaml:1:1: error: expected Megatron-LM's arguments: a map with MODEL_ARGS, or of --arguments"},
      {"no vocabulary", "run.yaml", megatron("", false),
       "run.yaml:2:3: error: the vocabulary's size is in another file; give it by --vocab (GPT-2's is 50257)"},
      {"a size that is no number", "run.yaml", megatron("  --ffn-hidden-size: wide\n"),
       "run.yaml:8:22: error: '--ffn-hidden-size' must be a whole number, not 'wide'"},
      {"a size whose products would overflow", "run.yaml",
       megatron("  --make-vocab-size-divisible-by: 4000000000000\n"),
       "run.yaml:8:35: error: '--make-vocab-size-divisible-by' is past 1000000000"},
      {"a dropout that is no number", "run.yaml", megatron("  --hidden-dropout: \"0}, x: {\"\n"),
       "run.yaml:8:21: error: '--hidden-dropout' must be a decimal from 0, not '0}, x: {'"},
      {"groups of no layers", "run.yaml", megatron("  --recompute-granularity: full\n  --recompute-num-layers: 0\n"),
       "run.yaml:9:27: error: '--recompute-num-layers' must be at least 1 with method uniform, not 0"},
      {"an unknown module", "run.yaml",
       megatron("  --recompute-granularity: selective\n  --recompute-modules: attention\n"),
       "run.yaml:9:24: error: recompute module 'attention' is not known; known are core_attn, mlp, moe, "
       "shared_experts, "
       "layernorm, moe_act, mla_up_proj"},
      {"sizes that are not modelled", "run.yaml", megatron("  --mtp-num-layers: 1\n"),
       "run.yaml:8:21: error: '--mtp-num-layers' changes sizes and is not modelled"},
      {"no TOML", "run.toml", "[model\n", "run.toml:1:"},
      {"TOML of something else", "run.toml", "[package]\nname = \"x\"\n",
       "run.toml: error: expected torchtitan's settings: tables [model] and [training]"},
      {"a table that is none", "run.toml", "model = 3\n[training]\nseq_len = 64\n",
       "run.toml:1:9: error: 'model' must be a table, not '3'"},
      {"an unknown flavor", "run.toml", "[model]\nname = \"llama3\"\nflavor = \"9B\"\n[training]\nseq_len = 64\n",
       "run.toml:3:10: error: model 'llama3' of flavor '9B' is not known; known are llama3 8B"},
      {"an unknown mode", "run.toml",
       "[model]\nflavor = \"8B\"\n[training]\nseq_len = 64\n[activation_checkpoint]\nmode = \"some\"\n",
       "run.toml:6:8: error: mode 'some' is not known; known are none, full, selective"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const std::string error = error_of(c.file, c.text);
    CHECK(error.substr(0, c.error.size()) == c.error);
  }
}
