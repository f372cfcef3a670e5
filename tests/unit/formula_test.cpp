#include "tidemark/formula/formula.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tidemark/base/errors.hpp"

using namespace tidemark;

namespace {

std::string message_of(const std::string& name, const std::vector<std::string>& arguments) {
  try {
    evaluate_formula(name, arguments);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("formula: what the command prints") {
  struct Case {
    std::string name;
    std::string formula;
    std::vector<std::string> arguments;
    std::string text;
  };
  const std::string memory = "checkpointed_activation_memory_mb";
  const Case cases[] = {
      {"36 layers by 6", memory, {"36", "6", "100", "10"}, "660\n"},
      {"the same, as floats", memory, {"36", "6", "100.0", "1e1"}, "660\n"},
      {"every layer", memory, {"32", "1", "120", "15"}, "600\n"},
      {"one segment", memory, {"24", "24", "80", "8"}, "1928\n"},
      {"6 layers left over", memory, {"30", "8", "50", "5"}, "420\n"},
      {"interval above the layers", memory, {"3", "5", "2", "1"}, "11\n"},
      {"decimals add without an error in the last digit", memory, {"36", "6", "100.1", "10.1"}, "661.2\n"},
      {"zero boundary", memory, {"4", "2", "0", "0"}, "0\n"},
      {"past 2^53", memory, {"1", "1", "9007199254740993", "0"}, "9007199254740992\n"},
      {"cost of one",
       "checkpoint_cost",
       {"1", "1"},
       "fwd 1\nrecompute 1\nbwd 2\ntotal 4\noverhead_vs_no_ckpt 0.3333333333333333\n"},
      {"cost in FLOPs",
       "checkpoint_cost",
       {"96", "8", "1.5e12"},
       "fwd 144000000000000\nrecompute 144000000000000\nbwd 288000000000000\ntotal 576000000000000\n"
       "overhead_vs_no_ckpt 0.3333333333333333\n"},
      {"selective, defaults",
       "selective_checkpoint_cost",
       {"32"},
       "fwd 32\nrecompute 4.8\nbwd 64\ntotal 100.8\noverhead_vs_no_ckpt 0.05\n"},
      {"selective, nothing to recompute",
       "selective_checkpoint_cost",
       {"7", "0", "2"},
       "fwd 14\nrecompute 0\nbwd 28\ntotal 42\noverhead_vs_no_ckpt 0\n"},
      {"activations, defaults", "activation_memory_mb", {"32"}, "51539.607552\n"},
      {"activations", "activation_memory_mb", {"2", "10", "5", "3", "4"}, "0.0144\n"},
      {"after, defaults", "memory_after_checkpoint", {"32", "6"}, "1476.395008\n"},
      {"after rounds segments down", "memory_after_checkpoint", {"30", "8", "1000", "100", "1", "10"}, "11\n"},
      {"after, at least one segment", "memory_after_checkpoint", {"3", "5", "1000", "100", "1", "10"}, "6\n"},
      {"small results have an exponent", "activation_memory_mb", {"1", "1", "1", "1", "1"}, "1.2e-05\n"},
      {"sqrt of 36", "optimal_segment", {"36"}, "6\n"},
      {"sqrt of 30 rounds down", "optimal_segment", {"30"}, "5\n"},
      {"sqrt of 31 rounds up", "optimal_segment", {"31"}, "6\n"},
      {"attention at its limit", "should_recompute", {"attention", "100e6", "0"}, "false\n"},
      {"attention above", "should_recompute", {"attention", "100000001", "9"}, "true\n"},
      {"ffn, cheap", "should_recompute", {"ffn", "600e6", "0.05"}, "true\n"},
      {"ffn, ratio at its limit", "should_recompute", {"ffn", "600e6", "0.1"}, "false\n"},
      {"ffn at its limit", "should_recompute", {"ffn", "500000000", "0.05"}, "false\n"},
      {"another type", "should_recompute", {"norm", "1e12", "0"}, "false\n"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(formula_text(evaluate_formula(c.formula, c.arguments)) == c.text);
  }
}

TEST_CASE("formula: what is refused, and how") {
  struct Case {
    std::string name;
    std::string formula;
    std::vector<std::string> arguments;
    std::string message;
  };
  const Case cases[] = {
      {"misspelt",
       "checkpoint_costs",
       {},
       "error: unknown formula 'checkpoint_costs'; did you mean 'checkpoint_cost'?"},
      {"nothing like it",
       "flash",
       {},
       "error: unknown formula 'flash'; known are checkpointed_activation_memory_mb, checkpoint_cost, "
       "selective_checkpoint_cost, activation_memory_mb, memory_after_checkpoint, optimal_segment, should_recompute"},
      {"too few",
       "checkpoint_cost",
       {"3"},
       "error: checkpoint_cost: expects 2 to 3 arguments, not 1: checkpoint_cost N_LAYERS SEGMENT_SIZE "
       "[FLOPS_PER_LAYER=1]"},
      {"too many",
       "optimal_segment",
       {"3", "4"},
       "error: optimal_segment: expects 1 argument, not 2: optimal_segment N_LAYERS"},
      {"a word", "optimal_segment", {"six"}, "error: optimal_segment: 'n_layers' must be a number, not 'six'"},
      {"nothing", "optimal_segment", {""}, "error: optimal_segment: 'n_layers' must be a number, not ''"},
      {"a tail", "optimal_segment", {"6x"}, "error: optimal_segment: 'n_layers' must be a number, not '6x'"},
      {"not finite", "optimal_segment", {"inf"}, "error: optimal_segment: 'n_layers' must be a number, not 'inf'"},
      {"a great exponent",
       "optimal_segment",
       {"0e999999999"},
       "error: optimal_segment: 'n_layers' must be a number, not '0e999999999'"},
      {"part of a layer",
       "optimal_segment",
       {"2.5"},
       "error: optimal_segment: 'n_layers' must be a whole number, at least 1, not '2.5'"},
      {"interval 0",
       "checkpointed_activation_memory_mb",
       {"36", "0", "1", "1"},
       "error: checkpointed_activation_memory_mb: 'checkpoint_interval' must be a whole number, at least 1, not '0'"},
      {"less than nothing",
       "checkpointed_activation_memory_mb",
       {"36", "6", "-1", "1"},
       "error: checkpointed_activation_memory_mb: 'layer_act_mb' must be at least 0, not '-1'"},
      {"free layers",
       "checkpoint_cost",
       {"3", "1", "0"},
       "error: checkpoint_cost: 'flops_per_layer' must be above 0, not '0'"},
      {"more than all",
       "selective_checkpoint_cost",
       {"3", "1.5"},
       "error: selective_checkpoint_cost: 'attention_fraction' must be from 0 to 1, not '1.5'"},
      {"past a double", "checkpoint_cost", {"1e300", "1", "1e300"}, "error: fwd: the result is too large for a number"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(message_of(c.formula, c.arguments) == c.message);
  }
}

TEST_CASE("formula: the interval of sqrt is the nearest whole number") {
  for (std::int64_t layers = 1; layers < 2000; ++layers) {
    CAPTURE(layers);
    const std::int64_t k = optimal_segment(layers);
    // |k - sqrt(L)| < 1/2, squared and without fractions.
    CHECK((2 * k - 1) * (2 * k - 1) < 4 * layers);
    CHECK((2 * k + 1) * (2 * k + 1) > 4 * layers);
    CHECK(std::get<double>(evaluate_formula("optimal_segment", {std::to_string(layers)})[0].value) ==
          static_cast<double>(k));
  }
}

TEST_CASE("formula: every formula has help, and its defaults are valid") {
  for (const Formula& formula : formulas()) {
    CAPTURE(formula.name);
    CHECK(!formula.expression.empty());
    CHECK(!formula.note.empty());
    std::vector<std::string> arguments;
    for (const FormulaParameter& parameter : formula.parameters)
      if (parameter.fallback.empty()) arguments.emplace_back("1");
    CHECK(!evaluate_formula(formula.name, arguments).empty());
  }
}
