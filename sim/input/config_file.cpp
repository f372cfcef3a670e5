#include "tidemark/input/config_file.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>
#include <variant>
#include <vector>

#include "model_types.hpp"
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

constexpr std::string_view rotary_types =
    "llama mistral qwen qwen2 qwen3 gemma gemma2 granite phi mixtral qwen2_moe qwen3_moe deepseek_v2 deepseek_v3";
constexpr std::string_view pdrop_types = "gpt2 gpt_bigcode phi";
constexpr std::string_view encoder_types = "bert vit";
constexpr std::string_view expert_types = "mixtral qwen2_moe qwen3_moe deepseek_v2 deepseek_v3";
constexpr std::string_view deepseek_types = "deepseek_v2 deepseek_v3";

const std::array config_fields = {
    ConfigField{"n_layer", &Fields::layers},
    ConfigField{"num_hidden_layers", &Fields::layers},
    ConfigField{"n_embd", &Fields::hidden},
    ConfigField{"hidden_size", &Fields::hidden},
    ConfigField{"n_head", &Fields::heads},
    ConfigField{"num_attention_heads", &Fields::heads},
    ConfigField{"num_key_value_heads", &Fields::kv_heads, rotary_types},
    ConfigField{"n_head_kv", &Fields::kv_heads, "phi"},
    ConfigField{"head_dim", &Fields::head_dim, rotary_types},
    ConfigField{"n_inner", &Fields::ffn_hidden},
    ConfigField{"intermediate_size", &Fields::ffn_hidden},
    ConfigField{"vocab_size", &Fields::vocab},
    ConfigField{"n_positions", &Fields::max_positions},
    ConfigField{"max_position_embeddings", &Fields::max_positions},
    ConfigField{"embd_pdrop", &Fields::embedding_dropout, pdrop_types},
    ConfigField{"attn_pdrop", &Fields::attention_dropout, pdrop_types},
    ConfigField{"resid_pdrop", &Fields::residual_dropout, pdrop_types},
    ConfigField{"attention_dropout", &Fields::attention_dropout, rotary_types},
    ConfigField{"kv_channels", &Fields::head_dim, "qwen"},
    ConfigField{"emb_dropout_prob", &Fields::embedding_dropout, "qwen"},
    ConfigField{"attn_dropout_prob", &Fields::attention_dropout, "qwen"},
    ConfigField{"hidden_dropout_prob", &Fields::hidden_dropout, encoder_types},
    ConfigField{"attention_probs_dropout_prob", &Fields::attention_dropout, encoder_types},
    ConfigField{"activation_function", &Fields::activation, pdrop_types},
    ConfigField{"hidden_act", &Fields::activation},
    ConfigField{"hidden_activation", &Fields::activation, "gemma gemma2"},
    ConfigField{"tie_word_embeddings", &Fields::tied_embeddings},
    ConfigField{"attention_bias", &Fields::qkv_bias,
                "llama qwen3 gemma gemma2 granite qwen3_moe deepseek_v2 deepseek_v3"},
    ConfigField{"qkv_bias", &Fields::qkv_bias, "vit qwen2_moe"},
    ConfigField{"mlp_bias", &Fields::ffn_bias, "llama granite"},
    ConfigField{"sliding_window", &Fields::sliding_window, "mistral qwen2 qwen3 gemma2 mixtral qwen2_moe qwen3_moe"},
    ConfigField{"multi_query", &Fields::multi_query, "gpt_bigcode"},
    ConfigField{"rotary_dim", &Fields::rotary_dim, "phi"},
    ConfigField{"partial_rotary_factor", &Fields::rotary_fraction, "phi"},
    ConfigField{"type_vocab_size", &Fields::token_types, "bert"},
    ConfigField{"num_labels", &Fields::labels},
    ConfigField{"image_size", &Fields::image_size, "vit"},
    ConfigField{"patch_size", &Fields::patch_size, "vit"},
    ConfigField{"num_channels", &Fields::channels, "vit"},
    ConfigField{"num_local_experts", &Fields::experts, expert_types},
    ConfigField{"num_experts", &Fields::experts, expert_types},
    ConfigField{"n_routed_experts", &Fields::experts, expert_types},
    ConfigField{"num_experts_per_tok", &Fields::experts_per_token, expert_types},
    ConfigField{"moe_intermediate_size", &Fields::expert_hidden, expert_types},
    ConfigField{"shared_expert_intermediate_size", &Fields::shared_hidden, "qwen2_moe"},
    ConfigField{"n_shared_experts", &Fields::shared_experts, deepseek_types},
    ConfigField{"first_k_dense_replace", &Fields::first_dense, deepseek_types},
    ConfigField{"moe_layer_freq", &Fields::every, deepseek_types},
    ConfigField{"decoder_sparse_step", &Fields::every, "qwen2_moe qwen3_moe"},
    ConfigField{"norm_topk_prob", &Fields::normalized, expert_types},
    ConfigField{"q_lora_rank", &Fields::query_rank, deepseek_types},
    ConfigField{"kv_lora_rank", &Fields::kv_rank, deepseek_types},
    ConfigField{"qk_nope_head_dim", &Fields::nope_dim, deepseek_types},
    ConfigField{"qk_rope_head_dim", &Fields::rope_dim, deepseek_types},
    ConfigField{"v_head_dim", &Fields::value_dim, deepseek_types},
    ConfigField{"num_layers", &Fields::layers, "t5"},
    ConfigField{"num_decoder_layers", &Fields::decoder_layers, "t5"},
    ConfigField{"d_model", &Fields::hidden, "t5"},
    ConfigField{"num_heads", &Fields::heads, "t5"},
    ConfigField{"d_kv", &Fields::head_dim, "t5"},
    ConfigField{"d_ff", &Fields::ffn_hidden, "t5"},
    ConfigField{"dropout_rate", &Fields::hidden_dropout, "t5"},
    ConfigField{"relative_attention_num_buckets", &Fields::position_buckets, "t5"},
};

/// Whole numbers that may be zero.
constexpr std::string_view may_be_zero = "n_shared_experts first_k_dense_replace q_lora_rank type_vocab_size";

/// Fields that change what is computed. Only this value is modelled.
constexpr auto fixed_fields = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"scale_attn_weights", "true"},
    {"scale_attn_by_inverse_layer_idx", "false"},
    {"reorder_and_upcast_attn", "false"},
    {"add_cross_attention", "false"},
    {"is_encoder_decoder", "false"},
    {"output_attentions", "false"},
    {"output_hidden_states", "false"},
    {"output_router_logits", "false"},
    {"router_jitter_noise", "0.0"},
    {"use_sliding_window", "false"},
    {"qk_layernorm", "false"},
    {"position_embedding_type", "absolute"},
    {"classifier_dropout", "null"},
    {"attention_softmax_in_fp32", "true"},
    {"scale_attention_softmax_in_fp32", "true"},
    {"partial_rotary_factor", "1.0"},
    {"chunk_size_feed_forward", "0"},
    {"tie_encoder_decoder", "false"},
    {"torchscript", "false"},
    {"no_bias", "true"},
    {"rotary_pct", "1.0"},
    {"use_cache_quantization", "false"},
    {"use_bfloat16", "false"},
});

/// Fields that leave sizes, ops and lifetimes of a training step as they are.
constexpr auto harmless_fields = std::to_array<std::string_view>(
    {"architectures", "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id",
     "cls_token_id", "mask_token_id", "unk_token_id", "initializer_range", "layer_norm_epsilon", "rms_norm_eps",
     "rope_theta", "rope_scaling", "rope_parameters", "torch_dtype", "dtype", "transformers_version", "use_cache",
     "_name_or_path", "name_or_path", "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
     "summary_type", "summary_use_proj", "task_specific_params", "n_ctx", "max_window_layers", "finetuning_task",
     "id2label", "label2id", "problem_type", "return_dict", "do_sample", "max_length", "min_length", "temperature",
     "top_k", "top_p", "repetition_penalty", "num_beams", "gradient_checkpointing", "attn_implementation",
     "_attn_implementation", "use_return_dict", "is_decoder", "license", "_commit_hash", "tokenizer_class",
     // Slices products for bit-equal inference; same totals, and gone from current transformers.
     "pretraining_tp",
     // Phi's and gpt_bigcode's kernels and bookkeeping
     "auto_map", "flash_attn", "flash_rotary", "fused_dense", "img_processor", "runner_max_sequence_length",
     // the router's losses, groups and balance: scalars, or numbers as many as there are experts
     "router_aux_loss_coef", "aux_loss_alpha", "seq_aux", "n_group", "topk_group", "topk_method",
     "routed_scaling_factor", "ep_size", "num_nextn_predict_layers", "rope_interleave",
     // Qwen's kernels and positions
     "seq_length", "use_flash_attn", "use_dynamic_ntk", "use_logn_attn", "rotary_emb_base", "scale_attn_weights",
     "softmax_in_fp32", "use_cache_kernel", "onnx_safe", "bf16", "fp16", "fp32",
     // Gemma 2's scale, BERT's and ViT's remainder
     "query_pre_attn_scalar", "layer_norm_eps", "cache_implementation", "encoder_stride", "pooler_act",
     "pooler_output_size", "directionality", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers",
     "pooler_size_per_head", "pooler_type", "use_mean_pooling", "image_mean", "image_std",
     // T5: how far its buckets reach, and what follows from feed_forward_proj
     "relative_attention_max_distance", "initializer_factor", "dense_act_fn", "is_gated_act", "output_past"});

bool contains_word(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const std::size_t space = words.find(' ');
    if (words.substr(0, space) == word) return true;
    words = space == std::string_view::npos ? "" : words.substr(space + 1);
  }
  return false;
}

double json_fraction(const Field& field) {
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
    void operator()(Given<std::int64_t> Fields::*m) const {
      const bool zero = contains_word(may_be_zero, field.key->name);
      store(fields.*m, field, zero ? whole_number(field, 0, max_integer) : positive_integer(field));
    }
    void operator()(Given<double> Fields::*m) const { store(fields.*m, field, json_fraction(field)); }
    void operator()(Given<bool> Fields::*m) const { store(fields.*m, field, boolean(field)); }
    void operator()(Given<std::string> Fields::*m) const { store(fields.*m, field, text(field)); }
  };
  std::visit(Visitor{fields, field}, member);
}

bool is_off(const DocNode& value) { return value.kind == DocNode::Kind::null || value.text == "false"; }

/// `fixed` fields must hold the modelled value, whose numbers may be written in several ways ("1", "1.0").
void check_fixed(const Field& field, std::string_view modelled) {
  const std::string& written = field.value->text;
  const bool same =
      written == modelled || (modelled == "1.0" && written == "1") || (modelled == "0.0" && written == "0");
  if (field.value->kind != DocNode::Kind::null && !same)
    field.fail(fmt::format("'{}' {} is not modelled; only {} is", field.key->name, shown(*field.value), modelled));
}

/// "relu", "gated-gelu": T5's gate and activation in one word. Its gated gelu has always meant gelu_new.
void read_feed_forward(Fields& fields, const Field& field) {
  const std::string written = text(field);
  const bool gated = written.starts_with("gated-");
  const std::string name = gated ? written.substr(6) : written;
  fields.gated_ffn = {gated, field.where(), false};
  fields.activation = {gated && name == "gelu" ? "gelu_new" : name, field.where(), false};
}

void read_field(Fields& fields, const std::string& type, const DocEntry& entry) {
  const std::string& name = entry.key->text;
  const Key key{name};
  const Field field{&key, entry.value};
  if (name == "model_type" || std::ranges::find(harmless_fields, name) != harmless_fields.end()) return;
  if (type == "t5" && name == "feed_forward_proj") return read_feed_forward(fields, field);
  if (type == "t5" && name == "is_encoder_decoder") return check_fixed(field, "true");
  if (type == "t5" && name == "classifier_dropout") return;
  const bool read_for_phi = type == "phi" && name == "partial_rotary_factor";
  for (const auto& [fixed, modelled] : fixed_fields)
    if (fixed == name && !read_for_phi) return check_fixed(field, modelled);
  if (type == "gemma2" && name.ends_with("_logit_softcapping")) {
    if (is_off(*entry.value)) field.fail(fmt::format("gemma2 without '{}' is not modelled", name));
    return;
  }
  if (type == "granite" && (name.ends_with("_multiplier") || name == "logits_scaling")) return;  // numbers
  if (name == "mlp_only_layers") {
    for (const Field& item : items(field)) fields.dense_layers.push_back(whole_number(item, 0, max_integer));
    return;
  }
  if (name == "scoring_func") {
    fields.scoring = {text(field), field.where(), false};
    if (*fields.scoring.value != "softmax" && *fields.scoring.value != "sigmoid")
      field.fail(fmt::format("scoring_func {} is not modelled; softmax and sigmoid are", shown(*entry.value)));
    return;
  }
  if (name == "layer_types" && type != "gemma2") {  // whose layers take turns
    for (const Field& item : items(field))
      if (item.value->text != "full_attention")
        item.fail(fmt::format("layer type {} is not modelled; only full_attention is", shown(*item.value)));
    return;
  }
  if (name == "layer_types") return;
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
  return std::string(model_type(text({&key, value}), value->where()).name);
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
  // Attention's bias is one setting for all four projections, but ViT's and Qwen2-MoE's; Gemma's gelu has always meant
  // the tanh form.
  if (type != "vit" && type != "qwen2_moe") out.projection_bias = out.qkv_bias;
  if (type == "qwen" && out.ffn_hidden.value) *out.ffn_hidden.value /= 2;  // that of w1 and w2 together
  if (type.starts_with("gemma") && out.activation.value == "gelu") out.activation.value = "gelu_pytorch_tanh";
  const DocPtr classes = root->find("id2label");
  if (!out.labels.value && classes && classes->kind == DocNode::Kind::map)
    out.labels = {static_cast<std::int64_t>(classes->entries.size()), {path}};
  // A window is only used where it is switched on, except by Mistral and Gemma 2.
  const ModelType& defaults = model_type(*out.model_type.value, out.model_type.where);
  const DocPtr window = root->find("sliding_window");
  const bool is_null = window && window->kind == DocNode::Kind::null;
  if (defaults.sliding_window == 0) out.sliding_window = {};
  if (defaults.sliding_window > 0 && !window) out.sliding_window = {defaults.sliding_window, {path}};
  if (is_null) out.sliding_window = {};
  // What the file leaves out and the model type defines.
  if (!out.kv_heads.value && defaults.kv_heads > 0) out.kv_heads = {defaults.kv_heads, {path}};
  if (out.multi_query.value == false) out.kv_heads = {};
  if (!out.head_dim.value && defaults.head_dim > 0) out.head_dim = {defaults.head_dim, {path}};
  for (auto* dropout : {&out.embedding_dropout, &out.attention_dropout, &out.residual_dropout})
    if (!dropout->value) *dropout = {defaults.dropout, {path}};
  if (out.hidden_dropout.value) out.embedding_dropout = out.residual_dropout = out.hidden_dropout;
  if (type == "t5" && out.hidden_dropout.value) out.attention_dropout = out.hidden_dropout;
  return out;
}

}  // namespace tidemark
