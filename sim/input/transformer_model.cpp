// The scenario's keys over a config's fields over the model type's defaults.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "model_types.hpp"
#include "tidemark/input/config_file.hpp"
#include "tidemark/input/quantities.hpp"

namespace tidemark {
namespace {

using Fields = DecoderFields;

template <class T, class Read>
void override_with(Given<T>& given, const YamlMap& model, std::string_view key, Read read) {
  if (const auto field = model.optional(key)) given = {T(read(*field)), field->where(), true};
}

std::int64_t extent(const Field& field) { return positive_integer(field); }
std::int64_t count(const Field& field) { return whole_number(field, 0, max_integer); }

struct IntegerKey {
  std::string_view key;
  Given<std::int64_t> Fields::*member;
  std::int64_t (*read)(const Field&) = extent;
};
constexpr std::array<IntegerKey, 25> integer_keys = {{
    {"layers", &Fields::layers},
    {"hidden", &Fields::hidden},
    {"heads", &Fields::heads},
    {"kv_heads", &Fields::kv_heads},
    {"head_dim", &Fields::head_dim},
    {"ffn_hidden", &Fields::ffn_hidden},
    {"vocab", &Fields::vocab},
    {"max_positions", &Fields::max_positions},
    {"rotary_dim", &Fields::rotary_dim},
    {"labels", &Fields::labels},
    {"image_size", &Fields::image_size},
    {"patch_size", &Fields::patch_size},
    {"channels", &Fields::channels},
    {"experts", &Fields::experts},
    {"experts_per_token", &Fields::experts_per_token},
    {"expert_hidden", &Fields::expert_hidden},
    {"shared_expert_hidden", &Fields::shared_hidden, count},
    {"dense_first", &Fields::first_dense, count},
    {"query_rank", &Fields::query_rank, count},
    {"kv_rank", &Fields::kv_rank},
    {"nope_dim", &Fields::nope_dim},
    {"rope_dim", &Fields::rope_dim},
    {"value_dim", &Fields::value_dim},
    {"decoder_layers", &Fields::decoder_layers},
    {"position_buckets", &Fields::position_buckets},
}};

void override_inline(Fields& fields, const YamlMap& model) {
  for (const IntegerKey& entry : integer_keys) override_with(fields.*entry.member, model, entry.key, entry.read);
  for (const auto& [key, member] : std::array<std::pair<std::string_view, Given<double> Fields::*>, 3>{
           {{"embedding_dropout", &Fields::embedding_dropout},
            {"attention_dropout", &Fields::attention_dropout},
            {"residual_dropout", &Fields::residual_dropout}}}) {
    override_with(fields.*member, model, "dropout", probability);
    override_with(fields.*member, model, key, probability);
  }
  for (const auto& [key, member] : std::array<std::pair<std::string_view, Given<bool> Fields::*>, 7>{
           {{"tied_embeddings", &Fields::tied_embeddings},
            {"qkv_bias", &Fields::qkv_bias},
            {"projection_bias", &Fields::projection_bias},
            {"ffn_bias", &Fields::ffn_bias},
            {"qk_norm", &Fields::qk_norm},
            {"gated_ffn", &Fields::gated_ffn},
            {"shared_expert_gate", &Fields::shared_gate}}})
    override_with(fields.*member, model, key, boolean);
  override_with(fields.activation, model, "activation", choice);
  override_with(fields.norm, model, "norm", choice);
  override_with(fields.positions, model, "positions", choice);
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

/// A factor as written, exactly.
Ratio ratio(const Field& field) {
  const auto decimal = field.value->kind == DocNode::Kind::scalar && !field.value->quoted
                           ? parse_decimal(field.value->text)
                           : std::nullopt;
  if (!decimal || decimal->digits == 0) field.must_be("a decimal above 0");
  return {decimal->digits, decimal->divisor};
}

/// Where experts stand and how large they are; `dense` is the width of a layer without any.
Experts experts_of(const ModelType& type, const Fields& fields, const YamlMap& model, std::int64_t dense) {
  Experts out = type.experts;
  const auto take = [](std::int64_t& into, const Given<std::int64_t>& given) { into = given.value.value_or(into); };
  take(out.count, fields.experts);
  take(out.per_token, fields.experts_per_token);
  take(out.hidden, fields.expert_hidden);
  take(out.shared_hidden, fields.shared_hidden);
  take(out.first_dense, fields.first_dense);
  take(out.every, fields.every);
  if (out.hidden == 0 && type.name == "mixtral") out.hidden = dense;
  if (fields.shared_experts.value && !fields.shared_hidden.value)
    out.shared_hidden = checked_product(*fields.shared_experts.value, out.hidden).value_or(max_integer);
  out.shared_gate = fields.shared_gate.value.value_or(out.shared_gate) && out.shared_hidden > 0;
  out.normalized = fields.normalized.value.value_or(out.normalized);
  if (fields.scoring.value) out.sigmoid = *fields.scoring.value == "sigmoid";
  out.dense_layers = fields.dense_layers;
  if (const auto field = model.optional("imbalance"))
    for (const Field& item : items(*field)) out.imbalance.push_back(ratio(item));
  if (const auto field = model.optional("capacity_factor")) out.capacity_factor = ratio(*field);
  out.pad_to_capacity = model.get("pad_to_capacity", boolean, false);
  const auto refuse = [&](const Given<std::int64_t>& given, const std::string& fault) {
    throw InputError(given.value ? given.where : model.where(), fault);
  };
  if (out.count == 0) refuse(fields.experts, fmt::format("missing 'experts' of model_type '{}'", type.name));
  if (out.per_token == 0) refuse(fields.experts_per_token, "missing 'experts_per_token'");
  if (out.hidden == 0) refuse(fields.expert_hidden, "missing 'expert_hidden'");
  if (out.per_token > out.count)
    refuse(fields.experts_per_token.value ? fields.experts_per_token : fields.experts,
           fmt::format("{} experts a token are more than the {} there are", out.per_token, out.count));
  return out;
}

LatentAttention latent_of(const Fields& fields, const YamlMap& model) {
  LatentAttention out;
  out.kv_rank = needed(fields.kv_rank, "kv_rank", model);
  out.query_rank = fields.query_rank.value.value_or(0);
  out.nope_dim = needed(fields.nope_dim, "nope_dim", model);
  out.rope_dim = needed(fields.rope_dim, "rope_dim", model);
  out.value_dim = needed(fields.value_dim, "value_dim", model);
  return out;
}

/// Keys of one kind of model given to another change nothing, so they are refused.
void check_meant(const ModelType& type, const YamlMap& model) {
  const auto refuse = [&](std::initializer_list<std::string_view> keys) {
    for (const std::string_view key : keys)
      if (const auto field = model.optional(key))
        field->fail(fmt::format("'{}' has no meaning for model_type '{}'", key, type.name));
  };
  if (!type.has_experts)
    refuse({"experts", "experts_per_token", "expert_hidden", "shared_expert_hidden", "shared_expert_gate",
            "dense_first", "imbalance", "capacity_factor", "pad_to_capacity"});
  if (!type.latent) refuse({"query_rank", "kv_rank", "nope_dim", "rope_dim", "value_dim"});
  if (type.latent) refuse({"head_dim", "rotary_dim", "qk_norm", "positions"});
  if (!type.encoder_decoder) refuse({"decoder_layers", "position_buckets"});
  if (type.encoder_decoder)
    refuse({"kv_heads", "max_positions", "qkv_bias", "projection_bias", "ffn_bias", "qk_norm", "norm", "positions",
            "rotary_dim"});
  if (!type.causal) refuse({"positions", "rotary_dim"});
  if (type.image.size == 0) refuse({"image_size", "patch_size", "channels"});
}

/// How much of a head is rotated; 0: all of it.
std::int64_t rotated(const TransformerSpec& spec, const Fields& fields) {
  if (fields.rotary_dim.value) return *fields.rotary_dim.value;
  const double factor = fields.rotary_fraction.value.value_or(spec.model_type == "phi" ? 0.5 : 1);
  return factor == 1 ? 0 : static_cast<std::int64_t>(static_cast<double>(spec.head_dim) * factor);
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

  const ModelType& type = model_type(*fields.model_type.value, fields.model_type.where);
  TransformerSpec spec;
  spec.model_type = type.name;
  spec.layers = needed(fields.layers, "layers", model);
  spec.hidden = needed(fields.hidden, "hidden", model);
  spec.heads = needed(fields.heads, "heads", model);
  check_meant(type, model);
  if (type.image.size == 0) spec.vocab = needed(fields.vocab, "vocab", model);
  if (!type.latent && !fields.head_dim.value && spec.hidden % spec.heads != 0)
    throw InputError(fields.hidden.overrides && !fields.heads.overrides ? fields.hidden.where : fields.heads.where,
                     fmt::format("{} heads do not divide the hidden size {}", spec.heads, spec.hidden));
  spec.kv_heads =
      fields.kv_heads.value.value_or(type.name == "gpt_bigcode" && !fields.multi_query.value ? 1 : spec.heads);
  spec.head_dim = fields.head_dim.value.value_or(spec.hidden / spec.heads);
  const bool four_times = type.name == "gpt2" || type.name == "gpt_bigcode" || type.name == "phi";
  if (four_times && !fields.ffn_hidden.value)
    fields.ffn_hidden.value = checked_product(4, spec.hidden).value_or(max_integer);
  spec.ffn_hidden = needed(fields.ffn_hidden, "ffn_hidden", model);
  spec.max_positions = fields.max_positions.value.value_or(type.max_positions);
  check_heads(spec, fields);

  spec.embedding_dropout = fields.embedding_dropout.value.value_or(0);
  spec.attention_dropout = fields.attention_dropout.value.value_or(0);
  spec.residual_dropout = fields.residual_dropout.value.value_or(0);
  spec.activation = known_activation(fields.activation, type.activation, *model.block().find("activation"));
  spec.gated_ffn = fields.gated_ffn.value.value_or(type.gated_ffn);
  spec.rms_norm = fields.norm.value ? *fields.norm.value == "rms" : type.rms_norm;
  spec.rotary = fields.positions.value ? *fields.positions.value == "rotary" : type.rotary;
  spec.alibi = fields.positions.value && *fields.positions.value == "alibi";
  spec.embedding_norm = model.get("embedding_norm", boolean, false);
  spec.head_bias = type.head_bias;
  spec.norms = type.norms;
  spec.causal = type.causal;
  spec.parallel_branches = type.parallel_branches;
  spec.softcaps = type.softcaps;
  spec.tied_embeddings = fields.tied_embeddings.value.value_or(type.tied);
  spec.qkv_bias = fields.qkv_bias.value.value_or(type.qkv_bias);
  spec.projection_bias = fields.projection_bias.value.value_or(type.projection_bias);
  spec.ffn_bias = fields.ffn_bias.value.value_or(type.ffn_bias);
  spec.qk_norm = fields.qk_norm.value.value_or(type.qk_norm);
  spec.attention = model.get("attention", choice, spec.attention);
  spec.head = model.get("head", choice, std::string(type.head));
  spec.labels = fields.labels.value.value_or(spec.labels);
  spec.token_types = fields.token_types.value.value_or(type.token_types);
  if (spec.rotary && !type.latent) spec.rotary_dim = rotated(spec, fields);
  if (type.has_experts) spec.experts = experts_of(type, fields, model, spec.ffn_hidden);
  if (type.latent) spec.latent = latent_of(fields, model);
  if (type.encoder_decoder) {
    spec.both.decoder_layers = fields.decoder_layers.value.value_or(spec.layers);
    spec.both.buckets = fields.position_buckets.value.value_or(32);
    if (spec.attention != "eager")
      model.optional("attention")->fail("t5 has attention: eager only, as its scores have a bias");
    if (spec.head != "lm") model.optional("head")->fail("t5 has head: lm only");
  }
  if (type.image.size > 0) {
    spec.image.size = fields.image_size.value.value_or(type.image.size);
    spec.image.patch = fields.patch_size.value.value_or(type.image.patch);
    spec.image.channels = fields.channels.value.value_or(type.image.channels);
  }
  return {spec, fields.sliding_window.value};
}

}  // namespace tidemark
