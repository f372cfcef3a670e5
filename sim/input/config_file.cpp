#include "tidemark/input/config_file.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>
#include <variant>
#include <vector>

#include "tidemark/input/quantities.hpp"

namespace tidemark {
namespace {

using Fields = DecoderFields;
using Member = std::variant<Given<std::int64_t> Fields::*, Given<double> Fields::*, Given<bool> Fields::*,
                            Given<std::string> Fields::*>;

/// A field of config.json that is read. `types` are the model types it means something for; "" is all.
struct ConfigField {
  std::string_view name;
  Member member;
  std::string_view types = {};
};

constexpr std::string_view rotary_types = "llama mistral qwen2 qwen3 gemma";

const std::array config_fields = {
    ConfigField{"n_layer", &Fields::layers},
    ConfigField{"num_hidden_layers", &Fields::layers},
    ConfigField{"n_embd", &Fields::hidden},
    ConfigField{"hidden_size", &Fields::hidden},
    ConfigField{"n_head", &Fields::heads},
    ConfigField{"num_attention_heads", &Fields::heads},
    ConfigField{"num_key_value_heads", &Fields::kv_heads, rotary_types},
    ConfigField{"head_dim", &Fields::head_dim, rotary_types},
    ConfigField{"n_inner", &Fields::ffn_hidden},
    ConfigField{"intermediate_size", &Fields::ffn_hidden},
    ConfigField{"vocab_size", &Fields::vocab},
    ConfigField{"n_positions", &Fields::max_positions},
    ConfigField{"max_position_embeddings", &Fields::max_positions},
    ConfigField{"embd_pdrop", &Fields::embedding_dropout, "gpt2"},
    ConfigField{"attn_pdrop", &Fields::attention_dropout, "gpt2"},
    ConfigField{"resid_pdrop", &Fields::residual_dropout, "gpt2"},
    ConfigField{"attention_dropout", &Fields::attention_dropout, rotary_types},
    ConfigField{"activation_function", &Fields::activation, "gpt2"},
    ConfigField{"hidden_act", &Fields::activation, rotary_types},
    ConfigField{"tie_word_embeddings", &Fields::tied_embeddings},
    ConfigField{"attention_bias", &Fields::qkv_bias, "llama qwen3 gemma"},
    ConfigField{"mlp_bias", &Fields::ffn_bias, "llama"},
    ConfigField{"sliding_window", &Fields::sliding_window, "mistral qwen2 qwen3"},
};

/// Fields that change what is computed. Only this value is modelled.
constexpr std::array<std::pair<std::string_view, std::string_view>, 13> fixed_fields = {{
    {"scale_attn_weights", "true"},
    {"scale_attn_by_inverse_layer_idx", "false"},
    {"reorder_and_upcast_attn", "false"},
    {"add_cross_attention", "false"},
    {"is_encoder_decoder", "false"},
    {"output_attentions", "false"},
    {"output_hidden_states", "false"},
    {"use_sliding_window", "false"},
    {"partial_rotary_factor", "1.0"},
    {"chunk_size_feed_forward", "0"},
    {"tie_encoder_decoder", "false"},
    {"torchscript", "false"},
    {"use_bfloat16", "false"},
}};

/// Fields that leave sizes, ops and lifetimes of a training step as they are.
constexpr std::array<std::string_view, 52> harmless_fields = {
    "architectures", "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id",
    "cls_token_id", "mask_token_id", "unk_token_id", "initializer_range", "layer_norm_epsilon", "rms_norm_eps",
    "rope_theta", "rope_scaling", "rope_parameters", "torch_dtype", "dtype", "transformers_version", "use_cache",
    "_name_or_path", "name_or_path", "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
    "summary_type", "summary_use_proj", "task_specific_params", "n_ctx", "max_window_layers", "finetuning_task",
    "id2label", "label2id", "problem_type", "return_dict", "do_sample", "max_length", "min_length", "temperature",
    "top_k", "top_p", "repetition_penalty", "num_beams", "gradient_checkpointing", "attn_implementation",
    "_attn_implementation", "use_return_dict", "is_decoder", "license", "_commit_hash", "tokenizer_class",
    // Slices products for bit-equal inference; same totals, and gone from current transformers.
    "pretraining_tp", "hidden_activation"};

/// What a model type is made of, and Hugging Face's defaults (configuration_<type>.py) for what a config leaves out.
struct ModelType {
  std::string_view name;
  bool decoder_norms = true;  // rms_norm, rotary, gated_ffn; GPT-2 has none of the three
  std::string_view activation = "silu";
  bool tied = false;
  bool qkv_bias = false, projection_bias = false, ffn_bias = false;
  bool qk_norm = false;
  std::int64_t kv_heads = 0;  // 0: as many as heads
  std::int64_t head_dim = 0;  // 0: hidden / heads
  std::int64_t max_positions = 0;
  double dropout = 0;
  std::int64_t sliding_window = 0;  // 0: none
};

constexpr std::array<ModelType, 6> model_types = {{
    {.name = "gpt2",
     .decoder_norms = false,
     .activation = "gelu_new",
     .tied = true,
     .qkv_bias = true,
     .projection_bias = true,
     .ffn_bias = true,
     .max_positions = 1024,
     .dropout = 0.1},
    {.name = "llama", .max_positions = 2048},
    {.name = "mistral", .kv_heads = 8, .max_positions = 131072, .sliding_window = 4096},
    {.name = "qwen2", .qkv_bias = true, .kv_heads = 32, .max_positions = 32768},
    {.name = "qwen3", .qk_norm = true, .kv_heads = 32, .head_dim = 128, .max_positions = 32768},
    {.name = "gemma",
     .activation = "gelu_pytorch_tanh",
     .tied = true,
     .kv_heads = 16,
     .head_dim = 256,
     .max_positions = 8192},
}};

const ModelType& model_type(const Given<std::string>& given) {
  const auto found = std::ranges::find(model_types, *given.value, &ModelType::name);
  if (found != model_types.end()) return *found;
  std::vector<std::string> known;
  for (const ModelType& type : model_types) known.emplace_back(type.name);
  throw InputError(given.where, fmt::format("unknown model_type '{}'; known are: {}",
                                            shown(std::string_view(*given.value)), joined(known)));
}

bool contains_word(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const std::size_t space = words.find(' ');
    if (words.substr(0, space) == word) return true;
    words = space == std::string_view::npos ? "" : words.substr(space + 1);
  }
  return false;
}

double json_probability(const Field& field) {
  const std::string& written = field.value->text;
  double value = -1;
  const auto [end, error] = std::from_chars(written.data(), written.data() + written.size(), value);
  const bool whole = error == std::errc{} && end == written.data() + written.size();
  if (field.value->kind != DocNode::Kind::scalar || field.value->quoted || !whole || !(value >= 0 && value <= 1))
    field.must_be("a number from 0 to 1");
  return value;
}

/// Stores a field's value; two spellings of one thing must agree.
template <class T>
void store(Given<T>& given, const Field& field, T value) {
  if (given.value && *given.value != value)
    field.fail(fmt::format("'{}' contradicts what the same file says under another spelling", field.key->name));
  given = {std::move(value), field.where(), false};
}

void store(Fields& fields, const Member& member, const Field& field) {
  struct Visitor {
    Fields& fields;
    const Field& field;
    void operator()(Given<std::int64_t> Fields::*m) const { store(fields.*m, field, positive_integer(field)); }
    void operator()(Given<double> Fields::*m) const { store(fields.*m, field, json_probability(field)); }
    void operator()(Given<bool> Fields::*m) const { store(fields.*m, field, boolean(field)); }
    void operator()(Given<std::string> Fields::*m) const { store(fields.*m, field, text(field)); }
  };
  std::visit(Visitor{fields, field}, member);
}

bool is_off(const DocNode& value) { return value.kind == DocNode::Kind::null || value.text == "false"; }

/// `fixed` fields must hold the modelled value, whose numbers may be written in several ways ("1", "1.0").
void check_fixed(const Field& field, std::string_view modelled) {
  const std::string& written = field.value->text;
  const bool same = written == modelled || (modelled == "1.0" && written == "1");
  if (field.value->kind != DocNode::Kind::null && !same)
    field.fail(fmt::format("'{}' {} is not modelled; only {} is", field.key->name, shown(*field.value), modelled));
}

void read_field(Fields& fields, const std::string& type, const DocEntry& entry) {
  const std::string& name = entry.key->text;
  const Key key{name};
  const Field field{&key, entry.value};
  if (name == "model_type" || std::ranges::find(harmless_fields, name) != harmless_fields.end()) return;
  for (const auto& [fixed, modelled] : fixed_fields)
    if (fixed == name) return check_fixed(field, modelled);
  if (name == "layer_types") {
    for (const Field& item : items(field))
      if (item.value->text != "full_attention")
        item.fail(fmt::format("layer type {} is not modelled; only full_attention is", shown(*item.value)));
    return;
  }
  const auto known = std::ranges::find(config_fields, name, &ConfigField::name);
  if (known == config_fields.end())
    throw InputError(entry.key->where(), fmt::format("unknown field {} for model_type '{}'; it could change sizes, so "
                                                     "it is not ignored",
                                                     shown(*entry.key), type));
  if (entry.value->kind == DocNode::Kind::null) return;
  if (!known->types.empty() && !contains_word(known->types, type)) {
    if (is_off(*entry.value)) return;
    throw InputError(entry.key->where(), fmt::format("field '{}' has no meaning for model_type '{}'", name, type));
  }
  store(fields, known->member, field);
}

std::string given_type(const DocPtr& root, const std::string& path, const std::string& override_type) {
  if (!override_type.empty()) return override_type;
  const DocPtr value = root->find("model_type");
  if (!value) throw InputError({path}, "missing field 'model_type'; expected a Hugging Face config (JSON)");
  const Key key{"model_type"};
  const Given<std::string> given{text({&key, value}), value->where()};
  return std::string(model_type(given).name);
}

}  // namespace

DecoderFields read_config(const std::string& path, const std::string& override_type) {
  const DocPtr root = read_json(path, "a Hugging Face config (JSON)");
  if (root->kind != DocNode::Kind::map)
    throw InputError(root->where(), "expected a Hugging Face config: a JSON object of fields");
  const std::string type = given_type(root, path, override_type);
  Fields out;
  out.model_type = {type, {path}};
  for (const DocEntry& entry : root->entries) read_field(out, type, entry);
  // Attention's bias is one setting for all four projections; Gemma's gelu has always meant the tanh form.
  out.projection_bias = out.qkv_bias;
  if (type == "gemma" && out.activation.value == "gelu") out.activation.value = "gelu_pytorch_tanh";
  // A window is only used where it is switched on, except by Mistral.
  const DocPtr window = root->find("sliding_window");
  const bool is_null = window && window->kind == DocNode::Kind::null;
  if (type != "mistral") out.sliding_window = {};
  if (type == "mistral" && !window) out.sliding_window = {model_type(out.model_type).sliding_window, {path}};
  if (is_null) out.sliding_window = {};
  // What the file leaves out and the model type defines.
  const ModelType& defaults = model_type(out.model_type);
  if (!out.kv_heads.value && defaults.kv_heads > 0) out.kv_heads = {defaults.kv_heads, {path}};
  if (!out.head_dim.value && defaults.head_dim > 0) out.head_dim = {defaults.head_dim, {path}};
  for (auto* dropout : {&out.embedding_dropout, &out.attention_dropout, &out.residual_dropout})
    if (!dropout->value) *dropout = {defaults.dropout, {path}};
  return out;
}

namespace {

template <class T, class Read>
void override_with(Given<T>& given, const YamlMap& model, std::string_view key, Read read) {
  if (const auto field = model.optional(key)) given = {T(read(*field)), field->where(), true};
}

std::int64_t extent(const Field& field) { return positive_integer(field); }

void override_inline(Fields& fields, const YamlMap& model) {
  for (const auto& [key, member] : std::array<std::pair<std::string_view, Given<std::int64_t> Fields::*>, 8>{
           {{"layers", &Fields::layers},
            {"hidden", &Fields::hidden},
            {"heads", &Fields::heads},
            {"kv_heads", &Fields::kv_heads},
            {"head_dim", &Fields::head_dim},
            {"ffn_hidden", &Fields::ffn_hidden},
            {"vocab", &Fields::vocab},
            {"max_positions", &Fields::max_positions}}})
    override_with(fields.*member, model, key, extent);
  for (const auto& [key, member] : std::array<std::pair<std::string_view, Given<double> Fields::*>, 3>{
           {{"embedding_dropout", &Fields::embedding_dropout},
            {"attention_dropout", &Fields::attention_dropout},
            {"residual_dropout", &Fields::residual_dropout}}}) {
    override_with(fields.*member, model, "dropout", probability);
    override_with(fields.*member, model, key, probability);
  }
  for (const auto& [key, member] :
       std::array<std::pair<std::string_view, Given<bool> Fields::*>, 4>{{{"tied_embeddings", &Fields::tied_embeddings},
                                                                          {"qkv_bias", &Fields::qkv_bias},
                                                                          {"projection_bias", &Fields::projection_bias},
                                                                          {"ffn_bias", &Fields::ffn_bias}}})
    override_with(fields.*member, model, key, boolean);
  override_with(fields.activation, model, "activation", choice);
}

std::int64_t needed(const Given<std::int64_t>& given, std::string_view name, const YamlMap& model) {
  if (given.value) return *given.value;
  throw InputError(model.where(), fmt::format("missing '{}' of the transformer, in 'model' or its config", name));
}

std::string known_activation(const Given<std::string>& given, std::string_view fallback, const Key& key) {
  const std::string name = given.value ? *given.value : std::string(fallback);
  const std::string known = name == "swish" ? "silu" : name;
  if (std::ranges::find(key.choices, known) != key.choices.end()) return known;
  const std::vector<std::string> choices(key.choices.begin(), key.choices.end());
  throw InputError(given.where, fmt::format("unknown activation '{}'; known are: {}", shown(std::string_view(name)),
                                            joined(choices)));
}

void check_heads(const TransformerSpec& spec, const Fields& fields) {
  const SourceLoc& where = fields.heads.where;
  if (spec.heads % spec.kv_heads != 0)
    throw InputError(fields.kv_heads.where.file.empty() ? where : fields.kv_heads.where,
                     fmt::format("{} heads are not a multiple of {} kv_heads", spec.heads, spec.kv_heads));
  if (spec.model_type != "gpt2") return;
  if (spec.kv_heads != spec.heads) throw InputError(fields.kv_heads.where, "gpt2 has as many kv_heads as heads");
  if (spec.head_dim * spec.heads != spec.hidden)
    throw InputError(fields.head_dim.where, "gpt2 has head_dim = hidden / heads");
}

}  // namespace

TransformerModel read_transformer(const YamlMap& model) {
  Fields fields;
  const auto inline_type = model.optional("model_type");
  const std::string type_name = inline_type ? choice(*inline_type) : "";
  if (const auto config = model.optional("config")) fields = read_config(path(*config), type_name);
  if (inline_type) fields.model_type = {type_name, inline_type->where()};
  if (!fields.model_type.value) throw InputError(model.where(), "missing 'config' or 'model_type' of the transformer");
  override_inline(fields, model);

  const ModelType& type = model_type(fields.model_type);
  TransformerSpec spec;
  spec.model_type = type.name;
  spec.layers = needed(fields.layers, "layers", model);
  spec.hidden = needed(fields.hidden, "hidden", model);
  spec.heads = needed(fields.heads, "heads", model);
  spec.vocab = needed(fields.vocab, "vocab", model);
  if (!fields.head_dim.value && spec.hidden % spec.heads != 0)
    throw InputError(fields.hidden.overrides && !fields.heads.overrides ? fields.hidden.where : fields.heads.where,
                     fmt::format("{} heads do not divide the hidden size {}", spec.heads, spec.hidden));
  spec.kv_heads = fields.kv_heads.value.value_or(spec.heads);
  spec.head_dim = fields.head_dim.value.value_or(spec.hidden / spec.heads);
  if (type.name == "gpt2" && !fields.ffn_hidden.value)
    fields.ffn_hidden.value = checked_product(4, spec.hidden).value_or(max_integer);
  spec.ffn_hidden = needed(fields.ffn_hidden, "ffn_hidden", model);
  spec.max_positions = fields.max_positions.value.value_or(type.max_positions);
  check_heads(spec, fields);

  spec.embedding_dropout = fields.embedding_dropout.value.value_or(0);
  spec.attention_dropout = fields.attention_dropout.value.value_or(0);
  spec.residual_dropout = fields.residual_dropout.value.value_or(0);
  spec.activation = known_activation(fields.activation, type.activation, *model.block().find("activation"));
  spec.gated_ffn = spec.rms_norm = spec.rotary = type.decoder_norms;
  spec.tied_embeddings = fields.tied_embeddings.value.value_or(type.tied);
  spec.qkv_bias = fields.qkv_bias.value.value_or(type.qkv_bias);
  spec.projection_bias = fields.projection_bias.value.value_or(type.projection_bias);
  spec.ffn_bias = fields.ffn_bias.value.value_or(type.ffn_bias);
  spec.qk_norm = type.qk_norm;
  spec.attention = model.get("attention", choice, spec.attention);
  spec.head = model.get("head", choice, spec.head);
  return {spec, fields.sliding_window.value};
}

}  // namespace tidemark
