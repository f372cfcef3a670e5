/// In what does the code of one model type differ from that of the others?
///
/// Internal to the transformer family. What a config can say is in TransformerSpec; here is what the source of a model
/// does whatever its config says.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace tidemark {

/// Hugging Face's mask of eager attention: made in each forward and added to the scores, or a buffer for masked_fill.
enum class EagerMask : std::uint8_t { added, buffer_of_layer, buffer_of_model };

struct ModelHabits {
  std::string_view model_type = {};
  bool fused_qkv = false;             // one product makes queries, keys and values
  bool conv1d = false;                // Hugging Face: weights [in, out], one addmm with the bias
  EagerMask mask = EagerMask::added;  // Hugging Face
  bool softmax_in_fp32 = false;       // in every model code
  bool expands_heads = false;         // one head of keys serves all queries without being repeated
  bool flash_repeats_heads = false;   // Hugging Face up to 4.48: for flash kernels too, which read grouped heads
  bool logits_widen = true;           // Hugging Face's loss takes them as fp32
  bool scales_embedding = false;      // by sqrt(hidden), or a number of the config
  bool multipliers = false;           // Granite: numbers scale the embedding, each branch and the logits
  bool gain_from_one = false;         // Hugging Face's norms multiply by 1 + weight, in fp32
  bool shifts_labels = true;          // row t's logits are against label t + 1
  bool inner_dropout = false;         // feed-forward drops what is inside, and its caller what comes out
  bool gain_first = false;            // norms multiply the weight by the row: T5LayerNorm
  bool masked_words = false;          // the head is BERT's: a pooler, or a transform and the words of masked tokens
};

inline constexpr std::array<ModelHabits, 10> model_habits = {{
    {.model_type = "gpt2",
     .fused_qkv = true,
     .conv1d = true,
     .mask = EagerMask::buffer_of_layer,
     .logits_widen = false},
    {.model_type = "gpt_bigcode",
     .fused_qkv = true,
     .mask = EagerMask::buffer_of_model,
     .softmax_in_fp32 = true,
     .expands_heads = true,
     .logits_widen = false},
    {.model_type = "qwen", .fused_qkv = true, .logits_widen = false},
    {.model_type = "mistral", .flash_repeats_heads = true},
    {.model_type = "mixtral", .flash_repeats_heads = true},
    {.model_type = "gemma", .scales_embedding = true, .gain_from_one = true},
    {.model_type = "gemma2", .scales_embedding = true, .gain_from_one = true},
    {.model_type = "granite", .scales_embedding = true, .multipliers = true},
    {.model_type = "bert", .masked_words = true},
    {.model_type = "t5", .logits_widen = false, .shifts_labels = false, .inner_dropout = true, .gain_first = true},
}};

/// Of a type without a row: the defaults.
constexpr ModelHabits habits_of(std::string_view model_type) {
  const auto* const found = std::ranges::find(model_habits, model_type, &ModelHabits::model_type);
  return found == model_habits.end() ? ModelHabits{} : *found;
}

}  // namespace tidemark
