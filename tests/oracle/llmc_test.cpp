// Does profile llm.c have llm.c's arrays, and does it refuse what llm.c cannot do? Its totals: tools/validate.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tidemark/base/errors.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/study/pipeline.hpp"

using namespace tidemark;

namespace {

const std::string small =
    "profile: llm.c\n"
    "model: {family: transformer, model_type: gpt2, layers: 2, hidden: 64, heads: 2, ffn_hidden: 256, vocab: 256,\n"
    "        max_positions: 32, dropout: 0, tied_embeddings: true}\n"
    "batch: {size: 2, sequence: 32}\n"
    "optimizer: adamw\n";

Step step_of(const std::vector<std::string>& sets) { return run(parse_scenario(small, "s.yaml", sets)).step; }

std::string error_of(const std::vector<std::string>& sets) {
  try {
    step_of(sets);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

std::int64_t bytes_of(const Step& step, const std::string& name) {
  std::int64_t total = 0;
  for (const StepStorage& storage : step.storages)
    if (step.names[storage.name] == name) total += storage.bytes.count;
  return total;
}

}  // namespace

// b = 2, t = 32, c = 64, l = 2: an array of one value a channel, row and layer has 2 x 64 x 64 elements.
TEST_CASE("llm.c: arrays by data type and flag") {
  struct Case {
    std::string name, array;
    std::vector<std::string> sets;
    std::int64_t bytes;
  };
  const std::string gpu = "dtype.parameters=bfloat16";
  const std::string gelu = "policy={kind: selective, recompute: [gelu]}";
  const std::string both = "policy={kind: selective, recompute: [gelu, layer_norm]}";
  const Case cases[] = {
      {"float32: both gradients of fch", "fch.grad", {}, 2 * 64 * 256 * 4},
      {"float32: ids of the loader", "inputs.loader", {}, 64 * 4},
      {"float32: moments are born", "tokens.weight.m", {}, 0},
      {"GPU: no gradient of fch", "fch.grad", {gpu}, 0},
      {"GPU: scratch", "scratch_bt4c", {gpu}, 64 * 256 * 2},
      {"GPU: output holds logits", "output", {gpu}, 64 * 256 * 2},
      {"GPU: output holds scores", "output", {gpu, "model.heads=32", "model.vocab=128"}, 64 * 32 * 32 * 2},
      {"GPU: cuDNN keeps statistics", "att", {gpu, "model.attention=fused"}, 2 * 64 * 2 * 4},
      {"GPU: all of gelu", "fch_gelu", {gpu}, 2 * 64 * 256 * 2},
      {"GPU -r 1: one layer's gelu", "fch_gelu", {gpu, gelu}, 64 * 256 * 2},
      {"GPU -r 1: norms stay", "ln1", {gpu, gelu}, 2 * 64 * 64 * 2},
      {"GPU -r 2: no norm", "ln1", {gpu, both}, 0},
      {"GPU -r 2: the last norm stays", "lnf", {gpu, both}, 64 * 64 * 2},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(bytes_of(step_of(c.sets), c.array) == c.bytes);
  }
}

TEST_CASE("llm.c: nothing is freed, and from the second step on nothing is allocated") {
  const Step step = step_of({"steps=3"});
  for (const Instruction& instruction : step.instructions) {
    CHECK(instruction.what != Do::free);
    if (instruction.what == Do::alloc) CHECK(step.ops[instruction.op].step == 0);
  }
}

TEST_CASE("llm.c: what it cannot do is refused") {
  struct Case {
    std::string name;
    std::vector<std::string> sets;
    std::string message;
  };
  const Case cases[] = {
      {"a vocabulary that it pads", {"model.vocab=250"}, "pads the vocabulary to whole 128s; write 256, not 250"},
      {"dropout", {"model.dropout=0.1"}, "has no dropout; set model.dropout: 0"},
      {"another model", {"model.model_type=llama"}, "trains GPT-2 only, not 'llama'"},
      {"another optimizer", {"optimizer=sgd"}, "has AdamW only; write optimizer: adamw"},
      {"recompute on the CPU", {"policy=full"}, "recomputes nothing in float32, which is train_gpt2.c"},
      {"full recompute",
       {"policy=full", "dtype.parameters=bfloat16"},
       "recomputes gelu, or gelu and layer_norm: {kind: selective, recompute: [gelu]}"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(error_of(c.sets) == "s.yaml: error: profile llm.c: " + c.message);
  }
}
