/// Decoders small enough to count by hand.
#pragma once

#include <string>

#include "support/decoder_specs.hpp"
#include "tidemark/program/outline.hpp"
#include "tidemark/program/transformer.hpp"
#include "tidemark/step/kernel.hpp"

namespace tidemark::test {

// b = 2 sequences of s = 8 tokens, h = 16, f = 64, V = 40; GPT-2 with 4 heads of 4, Llama with 4 heads of 4 over 2.
inline constexpr std::int64_t b = 2, s = 8, h = 16, f = 64, a = 4, V = 40;
inline constexpr std::int64_t row = b * s * h;         // elements of a boundary
inline constexpr std::int64_t square = b * a * s * s;  // elements of all scores

inline TransformerSpec small_gpt2() {
  TransformerSpec spec = gpt2_spec();
  spec.layers = 2;
  spec.hidden = h;
  spec.heads = spec.kv_heads = a;
  spec.head_dim = 0;
  spec.ffn_hidden = f;
  spec.vocab = V;
  spec.max_positions = 32;
  return spec;
}

inline TransformerSpec small_llama() { return llama_spec({"llama", 2, h, a, 2, 4, f, V}); }

inline Training training(const std::string& code, const std::string& kernels, DType dtype = DType::float32) {
  Training out;
  out.profile.model_code = code;
  out.profile.kernels = kernels;
  out.dtypes.parameters = out.dtypes.compute = dtype;
  out.batch = {.size = b, .sequence = s};
  return out;
}

inline Outline outline_of(const TransformerSpec& spec, const Training& how) {
  return outline(make_transformer(spec, how), KernelSet(how.profile.kernels));
}

}  // namespace tidemark::test
