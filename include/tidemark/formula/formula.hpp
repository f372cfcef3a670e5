/// What do the textbook closed forms say?
///
/// They are estimates that need no simulation; `tidemark formula NAME ARG ...` prints one. Names, argument order,
/// trailing defaults and result keys are those under which the forms circulate as Python functions. Evaluated exactly
/// on the decimals as written, then rounded once: 0.1 is one tenth, so no rounding error is printed as a digit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tidemark {

struct FormulaParameter {
  enum class Kind : std::uint8_t {
    count,     // a whole number, at least 1
    amount,    // a number, at least 0
    positive,  // a number above 0
    fraction,  // a number from 0 to 1
    text,
  };
  std::string name;
  Kind kind = Kind::count;
  std::string fallback;  // the value when left out; "" when it must be given
};

struct Formula {
  std::string name;
  std::vector<FormulaParameter> parameters;
  std::string expression;  // "ceil(num_layers / checkpoint_interval) * ..."
  std::string note;        // what it leaves out, for the help
};

/// All of them, in the order help lists them.
const std::vector<Formula>& formulas();
/// "checkpoint_cost N_LAYERS SEGMENT_SIZE [FLOPS_PER_LAYER=1]".
std::string usage(const Formula& formula);

struct FormulaValue {
  std::string key;  // the formula's name when it has a single result
  std::variant<bool, double> value;
  friend bool operator==(const FormulaValue&, const FormulaValue&) = default;
};
/// The shortest decimal that reads back as the same number ("660", "51539.607552"), or true, false. Valid JSON.
std::string to_string(const FormulaValue& value);

/// Throws InputError for an unknown name (with the nearest one), a wrong number of arguments, an argument that is not
/// a number or out of range, and a result past what a double holds.
std::vector<FormulaValue> evaluate_formula(const std::string& name, const std::vector<std::string>& arguments);
/// What the command prints: the value alone, or one "key value" line a result. Ends in a newline.
std::string formula_text(const std::vector<FormulaValue>& values);

/// round(sqrt(layers)), exactly. Chen et al. 2016: ceil(L/K) + K is least near K = sqrt(L).
std::int64_t optimal_segment(std::int64_t layers);

struct RecomputeLimits {
  double attention_bytes = 100e6;
  double ffn_bytes = 500e6;
  double ffn_flops_ratio = 0.1;
};
/// Attention above its bytes: yes. A feed-forward layer above its bytes: when recomputing it costs less than that
/// ratio. Anything else: no. Limits themselves do not count as above or less.
bool should_recompute(std::string_view layer_type, double activation_bytes, double recompute_flops_ratio,
                      const RecomputeLimits& limits = {});

}  // namespace tidemark
