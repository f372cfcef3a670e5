#include "tidemark/input/scenario.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "dtype_block.hpp"
#include "optimizer_block.hpp"
#include "tidemark/input/caching_settings.hpp"
#include "tidemark/input/config_file.hpp"
#include "tidemark/input/device_file.hpp"
#include "tidemark/input/layers.hpp"
#include "tidemark/input/parallel.hpp"
#include "tidemark/input/plan_file.hpp"
#include "tidemark/input/policy_reader.hpp"
#include "tidemark/input/program_file.hpp"
#include "tidemark/input/quantities.hpp"
#include "tidemark/input/settings.hpp"
#include "tidemark/input/shards.hpp"
#include "tidemark/step/kernel.hpp"

namespace tidemark {
namespace {

constexpr std::int64_t max_layers = 100'000;
constexpr std::int64_t max_steps = 10'000;
constexpr std::int64_t max_micro_batches = 1'000'000;

/// A word that the design knows and this version cannot do: refused by name, so that nobody looks for a typing error.
void refuse_unavailable(const Field& field, const std::vector<std::string>& later) {
  if (std::ranges::find(later, field.value->text) == later.end()) return;
  const std::vector<std::string> now(field.key->choices.begin(), field.key->choices.end());
  field.fail(fmt::format("'{}' {} is not available yet; available are: {}", field.key->name, shown(*field.value),
                         joined(now)));
}

/// Reads the parts of one scenario in the order in which they depend on each other.
class ScenarioReader {
 public:
  ScenarioReader(const DocPtr& root, std::string file) : map_(root, block("scenario")) { out_.file = std::move(file); }

  Scenario read() {
    read_family();
    read_labels();
    read_profile();
    refuse_meaningless();
    read_batch();
    read_dtypes();
    read_optimizer();
    read_loop();
    read_convention();
    read_model();
    read_pipeline();
    read_device_and_allocator();
    read_plan_or_policy();
    refuse_held_cache();
    return std::move(out_);
  }

 private:
  bool of_layers() const { return out_.family == "chain" || out_.family == "graph"; }

  std::optional<YamlMap> sub(std::string_view key) const {
    const auto field = map_.optional(key);
    if (!field) return std::nullopt;
    return YamlMap(expanded(field->value, key), block(key));
  }

  void read_family() {
    const Field model = map_.require("model");
    if (model.value->kind != DocNode::Kind::map) model.must_be("a map such as {family: chain, layers: 36}");
    const DocPtr family = model.value->find("family");
    if (!family) throw InputError(model.where(), "missing key 'family' in 'model'");
    const Field field{block("model", "chain").find("family"), family};
    out_.family = choice(field);
  }

  void read_labels() {
    out_.name = map_.get("name", text, std::filesystem::path(out_.file).stem().string());
    if (const auto field = map_.optional("budget")) out_.budget = size(*field);
  }

  void read_profile() {
    Profile& profile = out_.training.profile;
    profile = *find_profile(out_.family == "transformer" || out_.family == "program" ? "pytorch-cuda" : "ideal");
    const auto map = sub("profile");
    if (!map) return;
    if (const auto preset = map->optional("preset")) profile = *find_profile(choice(*preset));
    profile.runtime = map->get("runtime", choice, profile.runtime);
    profile.kernels = map->get("kernels", choice, profile.kernels);
    profile.model_code = map->get("model_code", choice, profile.model_code);
    profile.loop = map->get("loop", choice, profile.loop);
    if (const auto field = map->optional("pytorch")) {
      if (!profile.kernels.starts_with("cuda-"))
        field->fail(fmt::format("'pytorch' is for kernels of CUDA, not {}", profile.kernels));
      out_.training.pytorch = choice(*field);
    }
    read_libraries(*map);
    if (of_layers() && profile != *find_profile("ideal"))
      map_.optional("profile")->fail(
          fmt::format("'profile' has no meaning for family '{}', whose layers are given as numbers; only ideal holds",
                      out_.family));
  }

  /// What else decides which ops a Hugging Face model is made of.
  void read_libraries(const YamlMap& map) {
    for (const char* key : {"transformers", "fused"})
      if (const auto field = map.optional(key); field && out_.training.profile.model_code != "huggingface")
        field->fail(fmt::format("'{}' is for model_code huggingface, not {}", key, out_.training.profile.model_code));
    out_.training.transformers = map.get("transformers", choice, out_.training.transformers);
    out_.training.fused = map.get("fused", texts, out_.training.fused);
    for (const std::string& part : out_.training.fused)
      if (std::ranges::find(fused_parts, part) == fused_parts.end())
        map.optional("fused")->fail(
            fmt::format("'fused' has parts of {}, not '{}'",
                        joined(std::vector<std::string>(fused_parts.begin(), fused_parts.end())), part));
  }

  [[noreturn]] void no_meaning(const Field& field) const {
    throw InputError(field.where(), fmt::format("'{}' has no meaning for family '{}'", field.key->name, out_.family));
  }

  /// Keys that the scenario knows and this family cannot use.
  void refuse_meaningless() const {
    const bool transformer = out_.family == "transformer";
    for (const Field& field : map_.fields()) {
      const std::string_view key = field.key->name;
      const bool needs_program = key == "batch" || key == "dtype" || key == "optimizer" || key == "loop";
      const bool needs_transformer =
          key == "loss" || key == "flops_convention" || key == "lora" || key == "quantization";
      if ((needs_program && of_layers()) || (needs_transformer && !transformer)) no_meaning(field);
    }
  }

  void read_batch() {
    const auto map = sub("batch");
    if (!map) return;
    for (const Field& field : map->fields())
      if (out_.family != "transformer" && field.key->name != "accumulate") no_meaning(field);
    Batch& batch = out_.training.batch;
    batch.size = map->get(
        "size", [](const Field& f) { return positive_integer(f); }, batch.size);
    batch.sequence = map->get(
        "sequence", [](const Field& f) { return positive_integer(f); }, batch.sequence);
    batch.target = map->get(
        "target", [](const Field& f) { return positive_integer(f); }, batch.target);
    batch.accumulate = map->get(
        "accumulate", [](const Field& f) { return static_cast<int>(positive_integer(f, max_micro_batches)); },
        batch.accumulate);
  }

  void read_dtypes() {
    const auto map = sub("dtype");
    if (map) out_.training.dtypes = read_dtype_block(*map);
    if (const auto optimizer = sub("optimizer"))
      if (choice(optimizer->require("kind")) != "none") keep_framework_states(map ? &*map : nullptr, out_.training);
  }

  void read_optimizer() {
    Optimizer& optimizer = out_.training.optimizer;
    if (const auto map = sub("optimizer")) optimizer = read_optimizer_block(*map, out_.training, map_.has("parallel"));
    Loop& loop = out_.training.loop;
    loop.steps = optimizer.kind == OptimizerKind::none ? 1 : 2;
    if (const auto steps = map_.optional("steps")) loop.steps = static_cast<int>(positive_integer(*steps, max_steps));
  }

  void read_loop() {
    if (const auto map = sub("loss")) {
      Loss& loss = out_.training.loss;
      loss.chunks = map->get(
          "chunks", [](const Field& f) { return static_cast<int>(positive_integer(f, max_micro_batches)); },
          loss.chunks);
      loss.fused = map->get("fused", boolean, loss.fused);
    }
    read_adapters();
    if (const auto map = sub("loop")) {
      Loop& loop = out_.training.loop;
      loop.logits_held = map->get("logits_held", boolean, loop.logits_held);
      loop.cache_held = map->get("cache_held", boolean, loop.cache_held);
    }
  }

  void read_adapters() {
    Lora& lora = out_.training.lora;
    if (const auto map = sub("lora")) {
      lora.rank = positive_integer(map->require("rank"));
      lora.targets = texts(map->require("targets"));
      lora.dropout = map->get("dropout", probability, lora.dropout);
      lora.dtype = map->get("dtype", dtype, lora.dtype);
      lora.input_requires_grad = map->get("input_requires_grad", boolean, lora.input_requires_grad);
      lora.trained = map->get("trained", texts, lora.trained);
    }
    const auto field = map_.optional("quantization");
    if (!field) return;
    const std::string kind = choice(*field);
    const auto found = std::ranges::find(quantization_names, kind) - quantization_names.begin();
    out_.training.quantization = static_cast<Quantization>(found);
    if (found != 0 && lora.rank == 0) field->fail("'quantization' freezes the products; it needs 'lora' to train");
  }

  void read_convention() {
    out_.flops_convention = map_.get("flops_convention", choice, out_.flops_convention);
    const auto field = map_.optional("convention");
    if (!field) return;
    refuse_unavailable(*field, {"revolve"});
    const std::string name = choice(*field);
    if (name == "framework") return;
    const std::string family = name == "rotor" ? "chain" : "graph";
    if (out_.family != family) field->fail(fmt::format("convention '{}' is for family '{}'", name, family));
    out_.convention = name == "rotor"       ? Convention::rotor
                      : name == "checkmate" ? Convention::checkmate
                                            : Convention::dtr;
  }

  void read_model() {
    const YamlMap model(map_.require("model").value, block("model", out_.family));
    if (out_.family == "chain") out_.model = chain(model);
    if (out_.family == "graph") out_.model = read_graph(model, out_.convention != Convention::framework);
    if (out_.family == "mlp") out_.model = mlp(model);
    if (out_.family == "transformer") out_.model = transformer(model);
    if (out_.family == "program") out_.model = read_program(model);
  }

  LayerGraph chain(const YamlMap& model) const {
    LayerGraph graph = read_chain(model);
    if (out_.convention != Convention::rotor) return graph;
    if (const auto gradient = model.optional("gradient"))
      gradient->fail("convention 'rotor' takes each boundary as its gradient; leave 'gradient' out");
    // Rotor: the gradient of x_i is as large as x_i.
    Bytes boundary = graph.input;
    for (LayerCost& layer : graph.layers) {
      layer.gradient = boundary;
      boundary = layer.output;
    }
    graph.output_gradient = boundary;
    return graph;
  }

  static MlpSpec mlp(const YamlMap& model) {
    const auto extent = [](const Field& field) { return positive_integer(field); };
    MlpSpec spec;
    spec.layers = model.get(
        "layers", [](const Field& f) { return positive_integer(f, max_layers); }, spec.layers);
    spec.rows = model.get("rows", extent, spec.rows);
    spec.width = model.get("width", extent, spec.width);
    spec.hidden = model.get("hidden", extent, spec.hidden);
    spec.style = model.get("style", choice, spec.style);
    spec.activation = model.get("activation", choice, spec.activation);
    spec.loss = model.get("loss", choice, spec.loss);
    spec.input_requires_grad = model.get("input_requires_grad", boolean, spec.input_requires_grad);
    spec.save_pre_activation = model.get("save_pre_activation", boolean, spec.save_pre_activation);
    return spec;
  }

  TransformerSpec transformer(const YamlMap& model) const {
    TransformerModel read = read_transformer(model);
    read.spec.flops_convention = out_.flops_convention;
    check_megatron_parts(read.spec, model);
    const std::int64_t sequence = out_.training.batch.sequence;
    const SourceLoc where = sequence_place();
    if (read.spec.image.size > 0) {
      const std::int64_t rows = rows_of_a_sequence(read.spec, out_.training);
      if (sequence != Batch{}.sequence && sequence != rows)
        throw InputError(
            where, fmt::format("'sequence' is {}, but a picture has {} rows, its patches and the class; leave it out",
                               sequence, rows));
      return read.spec;
    }
    if (read.spec.both.decoder_layers > 0) return read.spec;
    if (const auto map = sub("batch"))
      if (const auto target = map->optional("target"))
        target->fail(fmt::format("'target' has no meaning for model_type '{}'", read.spec.model_type));
    if (has_position_table(read.spec) && sequence > read.spec.max_positions)
      throw InputError(where, fmt::format("a sequence of {} is longer than the model's {} positions", sequence,
                                          read.spec.max_positions));
    if (read.sliding_window && sequence > *read.sliding_window && read.spec.attention != "eager")
      throw InputError(where, fmt::format("a sequence of {} is longer than the model's sliding window of {}, which is "
                                          "modelled for attention: eager only",
                                          sequence, *read.sliding_window));
    return read.spec;
  }

  /// Parts of a model that only Megatron's code has here.
  void check_megatron_parts(const TransformerSpec& spec, const YamlMap& model) const {
    const std::string& code = out_.training.profile.model_code;
    if (spec.alibi && code != "megatron")
      model.optional("positions")->fail(fmt::format("'alibi' is simulated for model_code megatron, not {}", code));
    if (spec.embedding_norm && code != "megatron")
      model.optional("embedding_norm")
          ->fail(fmt::format("'embedding_norm' is simulated for model_code megatron, not {}", code));
    if (spec.alibi && spec.attention != "eager")
      model.optional("attention")->fail("positions 'alibi' need attention: eager, as scores have biases");
  }

  SourceLoc sequence_place() const {
    if (const auto map = sub("batch"))
      if (const auto sequence = map->optional("sequence")) return sequence->where();
    return map_.where();
  }

  void read_pipeline() {
    const auto map = sub("parallel");
    if (!map || map->fields().empty()) return;
    const auto* chain = std::get_if<LayerGraph>(&out_.model);
    const auto* transformer = std::get_if<TransformerSpec>(&out_.model);
    if (transformer == nullptr && (chain == nullptr || !chain->is_chain))
      map_.optional("parallel")
          ->fail("'parallel' is for the families chain and transformer so far, not '" + out_.family + "'");
    if (out_.convention != Convention::framework)
      map_.optional("convention")->fail("a pipeline is counted as a framework does; expected convention framework");
    out_.training.shards = read_shards(*map, transformer, out_.training);
    const Shards& shards = out_.training.shards;
    if (gathers_units(shards) || is_deepspeed(shards) || replicates_by_hooks(out_.training))
      return refuse_pipeline(*map);
    const auto layers = chain != nullptr ? static_cast<std::int64_t>(chain->layers.size()) : transformer->layers;
    out_.pipeline = read_parallel(*map, {layers, out_.training.batch.accumulate,
                                         out_.training.profile.loop == "megatron", transformer != nullptr});
    if (out_.pipeline) out_.training.batch.accumulate = out_.pipeline->micro_batches;
  }

  void refuse_pipeline(const YamlMap& map) const {
    const Sharding sharding = out_.training.shards.sharding;
    const std::string with = sharding == Sharding::none
                                 ? "DistributedDataParallel"
                                 : "sharding " + std::string(sharding_names[static_cast<std::size_t>(sharding)]);
    for (const std::string_view key :
         {"pipeline", "virtual", "layers_per_chunk", "schedule", "schedule_file", "micro_batches", "transfer_time",
          "transfer_bandwidth", "stage_policies", "stage_policies_file"})
      if (const auto field = map.optional(key))
        field->fail(fmt::format("'{}' is not simulated together with {}", key, with));
  }

  void read_device_and_allocator() {
    if (const auto field = map_.optional("device")) out_.device = read_device(*field);
    if (const auto map = sub("allocator")) {
      out_.allocator = map->get("kind", choice, out_.allocator);
      if (out_.pipeline && out_.pipeline->steady && out_.allocator != "live")
        map->optional("kind")->fail(
            "an allocator does not repeat because the live bytes do; expected kind live, or no "
            "parallel.steady");
      if (out_.allocator == "cuda_caching") out_.caching = read_caching(*map, out_.device);
      for (const Field& field : map->fields())
        if (!out_.caching && field.key->name != "kind")
          field.fail(fmt::format("'{}' is for kind 'cuda_caching'", field.key->name));
    }
  }

  /// Hugging Face's model returns a cache where checkpointing does not turn it off.
  void refuse_held_cache() const {
    const Loop& loop = out_.training.loop;
    const bool returned = loop.logits_held && out_.family == "transformer" &&
                          out_.training.profile.model_code == "huggingface" &&
                          std::holds_alternative<policy::None>(out_.policy.kind);
    if (loop.cache_held && !returned)
      sub("loop")
          ->optional("cache_held")
          ->fail(
              "'cache_held' is for a transformer of model_code huggingface with 'logits_held' and without a policy: "
              "checkpointing turns the cache off");
  }

  void read_plan_or_policy() {
    const auto field = map_.optional("policy");
    if (!field) return;
    const PolicyRequest request = read_policy(field->value);
    out_.policy = request.policy;
    if (!request.plan_file.empty()) out_.policy.kind = policy::Given{read_plan(request.plan_file, model_outline())};
  }

  /// The model's own mistakes (sizes past 2^63) have no place; the scenario has.
  Outline model_outline() const {
    try {
      return outline(out_);
    } catch (const InputError& error) {
      throw InputError({out_.file}, error.message());
    }
  }

  YamlMap map_;
  Scenario out_;
};

DocPtr empty_map() {
  auto node = std::make_shared<DocNode>();
  node->kind = DocNode::Kind::map;
  node->source = std::make_shared<const DocSource>();
  return node;
}

Scenario scenario_of(DocPtr document, const std::string& file, const std::vector<std::string>& sets) {
  for (const std::string& set : sets) document = with_setting(document, set);
  return ScenarioReader(document, file).read();
}

}  // namespace

Scenario read_scenario(const std::string& path, const std::vector<std::string>& sets) {
  return scenario_of(read_yaml(path, "a scenario (YAML)"), path, sets);
}

Scenario read_scenario_document(const DocPtr& document, const std::string& file) {
  return scenario_of(document, file, {});
}

Scenario parse_scenario(const std::string& text, const std::string& name, const std::vector<std::string>& sets) {
  return scenario_of(parse_yaml(text, {name, std::filesystem::path(name).parent_path().string()}), name, sets);
}

Scenario scenario_from_config(const ConfigFlags& flags, const std::vector<std::string>& sets) {
  DocPtr document = with_value(empty_map(), "model.family", "transformer", "--config");
  const std::string quoted_config = "'" + flags.config + "'";
  document = with_value(document, "model.config", quoted_config, "--config " + flags.config);
  document = with_value(document, "name", "'" + std::filesystem::path(flags.config).stem().string() + "'", "--config");
  if (!flags.batch.empty()) document = with_value(document, "batch.size", flags.batch, "--batch " + flags.batch);
  if (!flags.sequence.empty())
    document = with_value(document, "batch.sequence", flags.sequence, "--sequence " + flags.sequence);
  if (!flags.policy.empty()) document = with_value(document, "policy", flags.policy, "--policy " + flags.policy);
  return scenario_of(document, "", sets);
}

Outline outline(const Scenario& scenario) {
  if (const auto* graph = std::get_if<LayerGraph>(&scenario.model)) return outline(*graph);
  const KernelSet kernels(scenario.training.profile.kernels, scenario.training.pytorch);
  if (const auto* program = std::get_if<Program>(&scenario.model)) return outline(*program, kernels);
  if (const auto* mlp = std::get_if<MlpSpec>(&scenario.model))
    return outline(make_mlp(*mlp, scenario.training), kernels);
  return outline(make_transformer(std::get<TransformerSpec>(scenario.model), scenario.training), kernels);
}

}  // namespace tidemark
