#include "tidemark/study/express.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/small_decoders.hpp"
#include "tidemark/base/errors.hpp"

using namespace tidemark;

namespace {

Outline llama_of_three() {
  TransformerSpec spec = test::small_llama();
  spec.layers = 3;
  return test::outline_of(spec, test::training("huggingface", "cuda-sm80"));
}

Outline gpt2_of_three() {
  TransformerSpec spec = test::small_gpt2();
  spec.layers = 3;
  return test::outline_of(spec, test::training("megatron", "transformer-engine"));
}

std::vector<std::string> texts(const std::vector<Expression>& all) {
  std::vector<std::string> out;
  for (const Expression& one : all) out.push_back(one.text);
  return out;
}

const Expression& saying(const std::vector<Expression>& all, const std::string& words) {
  const auto found = std::ranges::find(all, words, &Expression::words);
  REQUIRE(found != all.end());
  return *found;
}

}  // namespace

TEST_CASE("express: Megatron's flags") {
  const std::vector<Expression> all = expressions("megatron", gpt2_of_three());
  const std::string selective = "--recompute-granularity selective --recompute-modules ";
  const std::string full = "--recompute-granularity full --recompute-method ";
  CHECK(texts(all) == std::vector<std::string>{
                          "# no flags needed", selective + "core_attn", selective + "mlp", selective + "core_attn mlp",
                          full + "uniform --recompute-num-layers 1", full + "block --recompute-num-layers 1",
                          full + "uniform --recompute-num-layers 2", full + "block --recompute-num-layers 2",
                          full + "uniform --recompute-num-layers 3", full + "block --recompute-num-layers 3"});
  CHECK(saying(all, "no recomputation").kind == PolicyKind(policy::None{}));
  CHECK(saying(all, "core_attn and mlp of every block").kind == PolicyKind(policy::Selective{{"core_attn", "mlp"}}));
  CHECK(saying(all, "segments of 2 blocks").kind == PolicyKind(policy::Interval{2, true}));
  CHECK(saying(all, "the first 2 of 3 blocks in full").kind == PolicyKind(policy::Block{2}));
  // blocks without its modules are run again whole or not at all
  Outline bare;
  bare.layers.push_back({"block", "block", true, {}, {}});
  CHECK(texts(expressions("megatron", bare)) == std::vector<std::string>{"# no flags needed",
                                                                         full + "uniform --recompute-num-layers 1",
                                                                         full + "block --recompute-num-layers 1"});
}

TEST_CASE("express: torchtitan's table") {
  const std::vector<Expression> all = expressions("torchtitan", llama_of_three());
  const std::string table = "[activation_checkpoint]\nmode = ";
  const std::string selective = table + "\"selective\"\nselective_ac_option = ";
  CHECK(texts(all) == std::vector<std::string>{table + "\"none\"", selective + "\"3\"", selective + "\"2\"",
                                               selective + "\"op\"", table + "\"full\""});
  CHECK(saying(all, "the last of every 3 blocks in full").kind == PolicyKind(policy::Selective{{}, {}, {}, 3}));
  CHECK(all.back().kind == PolicyKind(policy::Full{}));
}

TEST_CASE("express: Hugging Face's arguments") {
  const std::vector<Expression> all = expressions("hf", llama_of_three());
  CHECK(texts(all) == std::vector<std::string>{"TrainingArguments(gradient_checkpointing=False)",
                                               "TrainingArguments(gradient_checkpointing=True, "
                                               "gradient_checkpointing_kwargs={\"use_reentrant\": False})"});
  CHECK(all.front().kind == PolicyKind(policy::None{}));
  CHECK(all.back().kind == PolicyKind(policy::Full{}));
}

TEST_CASE("express: a policy function keeps what the plan keeps, in as many blocks") {
  const std::vector<Expression> all = expressions("sac", llama_of_three());
  CHECK(all.front().kind == PolicyKind(policy::None{}));
  const Expression& bare = saying(all, "the first 2 of 3 blocks: all but nothing");
  CHECK(bare.kind == PolicyKind(policy::Block{2}));
  CHECK(bare.text.find("KEPT = set()\n") != std::string::npos);
  CHECK(bare.text.find("for block in blocks[:2]:\n") != std::string::npos);
  const Expression& products = saying(all, "the first 3 of 3 blocks: all but linear");
  CHECK(products.kind == PolicyKind(policy::Selective{{}, {"linear"}, {{0, 2}}}));
  CHECK(products.text.find("KEPT = {torch.ops.aten.addmm.default, torch.ops.aten.mm.default}\n") != std::string::npos);
  CHECK(products.text.find("CheckpointPolicy.MUST_SAVE if op in KEPT else CheckpointPolicy.PREFER_RECOMPUTE") !=
        std::string::npos);
  CHECK(
      products.text.ends_with("    block.forward = partial(checkpoint, block.forward, use_reentrant=False, "
                              "context_fn=contexts)"));
}

TEST_CASE("express: an unknown framework is refused with those that are known") {
  CHECK_THROWS_WITH_AS(expressions("deepspeed", llama_of_three()),
                       "error: --express must be one of megatron, torchtitan, hf, sac, not 'deepspeed'", InputError);
}
