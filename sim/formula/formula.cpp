#include "tidemark/formula/formula.hpp"

#include <algorithm>
#include <array>
#include <boost/multiprecision/cpp_int.hpp>
#include <charconv>
#include <cmath>

#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

/// A fraction of unbounded integers: sums and products of decimals have no rounding.
using Exact = boost::multiprecision::cpp_rational;
using Whole = boost::multiprecision::cpp_int;
using Kind = FormulaParameter::Kind;

/// One argument, read as its parameter's kind.
struct Argument {
  std::string text;
  Exact number;
};
using Arguments = std::vector<Argument>;

[[noreturn]] void refuse(const Formula& formula, const FormulaParameter& parameter, const std::string& expected,
                         const std::string& text) {
  throw InputError(formula.name + ": '" + parameter.name + "' must be " + expected + ", not '" + text + "'");
}

/// The decimal as written, sign and exponent included; nothing of the text may be left over.
bool read_decimal(const std::string& text, Exact& number) {
  double rounded = 0;  // bounds the exponent, so that 10^exponent below stays small
  const char* const end = text.data() + text.size();
  const auto [stop, fault] = std::from_chars(text.data(), end, rounded);
  if (fault != std::errc{} || stop != end || !std::isfinite(rounded)) return false;
  const std::size_t e = text.find_first_of("eE");
  const std::string mantissa = text.substr(0, e);
  int exponent = 0;
  if (e != std::string::npos) {
    const std::size_t sign = text[e + 1] == '+' ? 1 : 0;
    std::from_chars(text.data() + e + 1 + sign, end, exponent);
  }
  if (exponent > 400 || exponent < -400) return false;  // "0e999999999" is finite
  Whole digits = 0;
  bool after_point = false;
  for (const char c : mantissa) {
    if (c == '.') after_point = true;
    if (c < '0' || c > '9') continue;
    digits = digits * 10 + (c - '0');
    exponent -= after_point ? 1 : 0;
  }
  const Whole power = boost::multiprecision::pow(Whole(10), static_cast<unsigned>(std::abs(exponent)));
  number = exponent >= 0 ? Exact(digits * power) : Exact(digits, power);
  if (text.front() == '-') number = -number;
  return true;
}

Argument read_argument(const Formula& formula, const FormulaParameter& parameter, const std::string& text) {
  Argument argument{text, 0};
  if (parameter.kind == Kind::text) return argument;
  if (!read_decimal(text, argument.number)) refuse(formula, parameter, "a number", text);
  const Exact& number = argument.number;
  switch (parameter.kind) {
    case Kind::count:
      if (denominator(number) != 1 || number < 1) refuse(formula, parameter, "a whole number, at least 1", text);
      break;
    case Kind::amount:
      if (number < 0) refuse(formula, parameter, "at least 0", text);
      break;
    case Kind::positive:
      if (number <= 0) refuse(formula, parameter, "above 0", text);
      break;
    case Kind::fraction:
      if (number < 0 || number > 1) refuse(formula, parameter, "from 0 to 1", text);
      break;
    case Kind::text:
      break;
  }
  return argument;
}

Whole floor_divided(const Exact& a, const Exact& b) { return numerator(a) / numerator(b); }  // counts only

double rounded(const Exact& number, const std::string& key) {
  const double value = number.convert_to<double>();
  if (!std::isfinite(value)) throw InputError(key + ": the result is too large for a number");
  return value;
}

FormulaValue result(const std::string& key, const Exact& number) { return {key, rounded(number, key)}; }

/// Backward counts as two forwards.
std::vector<FormulaValue> cost(const Exact& forward, const Exact& recompute) {
  const Exact backward = 2 * forward;
  return {result("fwd", forward), result("recompute", recompute), result("bwd", backward),
          result("total", forward + recompute + backward),
          result("overhead_vs_no_ckpt", recompute / (forward + backward))};
}

std::vector<FormulaValue> checkpointed_activation_memory(const Arguments& a) {
  const Exact &layers = a[0].number, &interval = a[1].number, &layer = a[2].number, &boundary = a[3].number;
  const Exact boundaries = Exact(floor_divided(layers + interval - 1, interval));
  return {result("checkpointed_activation_memory_mb", boundaries * boundary + interval * layer)};
}

std::vector<FormulaValue> checkpoint_cost(const Arguments& a) {
  const Exact forward = a[0].number * a[2].number;
  return cost(forward, forward);
}

std::vector<FormulaValue> selective_checkpoint_cost(const Arguments& a) {
  const Exact forward = a[0].number * a[2].number;
  return cost(forward, forward * a[1].number);
}

std::vector<FormulaValue> activation_memory(const Arguments& a) {
  const Exact per_layer = 12 * a[3].number * a[2].number * a[1].number * a[4].number;
  return {result("activation_memory_mb", a[0].number * per_layer / 1'000'000)};
}

std::vector<FormulaValue> memory_after_checkpoint(const Arguments& a) {
  const Exact segments = std::max(Exact(1), Exact(floor_divided(a[0].number, a[1].number)));
  const Exact unit = a[4].number * a[3].number * a[2].number * a[5].number;
  return {result("memory_after_checkpoint", (segments + a[1].number) * unit / 1'000'000)};
}

std::vector<FormulaValue> optimal_segment_of(const Arguments& a) {
  const Whole layers = numerator(a[0].number);
  const Whole root = boost::multiprecision::sqrt(layers);
  return {result("optimal_segment", Exact(layers - root * root > root ? root + 1 : root))};
}

std::vector<FormulaValue> should_recompute_of(const Arguments& a) {
  return {{"should_recompute",
           should_recompute(a[0].text, a[1].number.convert_to<double>(), a[2].number.convert_to<double>())}};
}

using Evaluate = std::vector<FormulaValue> (*)(const Arguments&);
struct Entry {
  Formula formula;
  Evaluate evaluate;
};

const std::vector<Entry>& table() {
  static const std::vector<FormulaParameter> shape = {{"hidden", Kind::count, "8192"},
                                                      {"seq", Kind::count, "8192"},
                                                      {"batch", Kind::count, "1"},
                                                      {"bytes_per_value", Kind::positive, "2"}};
  const auto with_shape = [](std::vector<FormulaParameter> first) {
    first.insert(first.end(), shape.begin(), shape.end());
    return first;
  };
  static const std::vector<Entry> entries = {
      {{"checkpointed_activation_memory_mb",
        {{"num_layers", Kind::count, ""},
         {"checkpoint_interval", Kind::count, ""},
         {"layer_act_mb", Kind::amount, ""},
         {"boundary_input_mb", Kind::amount, ""}},
        "ceil(num_layers / checkpoint_interval) * boundary_input_mb + checkpoint_interval * layer_act_mb",
        "Peak activations under segments of checkpoint_interval layers (Chen et al. 2016). Counts every boundary and a "
        "full segment at once: an upper bound where the last segment is short, or used boundaries are freed."},
       checkpointed_activation_memory},
      {{"checkpoint_cost",
        {{"n_layers", Kind::count, ""}, {"segment_size", Kind::count, ""}, {"flops_per_layer", Kind::positive, "1"}},
        "fwd = n_layers * flops_per_layer, recompute = fwd, bwd = 2 * fwd",
        "One extra forward whatever the segment size: total over fwd + bwd is 4/3."},
       checkpoint_cost},
      {{"selective_checkpoint_cost",
        {{"n_layers", Kind::count, ""},
         {"attention_fraction", Kind::fraction, "0.15"},
         {"flops_per_layer", Kind::positive, "1"}},
        "fwd = n_layers * flops_per_layer, recompute = attention_fraction * fwd, bwd = 2 * fwd",
        "Only attention runs again."},
       selective_checkpoint_cost},
      {{"activation_memory_mb", with_shape({{"n_layers", Kind::count, ""}}),
        "n_layers * 12 * batch * seq * hidden * bytes_per_value / 1e6",
        "Activations without recomputation, at 12 tensors of batch x seq x hidden a layer."},
       activation_memory},
      {{"memory_after_checkpoint", with_shape({{"n_layers", Kind::count, ""}, {"segment_size", Kind::count, ""}}),
        "(max(1, floor(n_layers / segment_size)) + segment_size) * batch * seq * hidden * bytes_per_value / 1e6",
        "Not checkpointed_activation_memory_mb: it rounds the number of segments down, and counts one tensor a layer "
        "of "
        "the segment that is rebuilt, not 12."},
       memory_after_checkpoint},
      {{"optimal_segment",
        {{"n_layers", Kind::count, ""}},
        "round(sqrt(n_layers))",
        "The interval near which ceil(L / K) + K is least."},
       optimal_segment_of},
      {{"should_recompute",
        {{"layer_type", Kind::text, ""},
         {"activation_bytes", Kind::amount, ""},
         {"recompute_flops_ratio", Kind::amount, ""}},
        "attention: activation_bytes > 100e6; ffn: activation_bytes > 500e6 and recompute_flops_ratio < 0.1; else "
        "false",
        "recompute_flops_ratio: the recomputed forward FLOPs over those of the whole step."},
       should_recompute_of},
  };
  return entries;
}

std::string joined_names() {
  std::string out;
  for (const Entry& entry : table()) out += (out.empty() ? "" : ", ") + entry.formula.name;
  return out;
}

const Entry& find(const std::string& name) {
  std::vector<std::string> known;
  for (const Entry& entry : table()) {
    if (entry.formula.name == name) return entry;
    known.push_back(entry.formula.name);
  }
  const std::string near = nearest_name(name, known);
  throw InputError("unknown formula '" + name + "'; " +
                   (near.empty() ? "known are " + joined_names() : "did you mean '" + near + "'?"));
}

/// Fixed notation where a person would write it so, as Python prints a float; digits are the shortest that read back.
std::string shortest(double value) {
  const double size = std::abs(value);
  const bool fixed = value == 0 || (size >= 1e-4 && size < 1e16);
  std::array<char, 64> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 fixed ? std::chars_format::fixed : std::chars_format::scientific);
  return {buffer.data(), end.ptr};
}

}  // namespace

const std::vector<Formula>& formulas() {
  static const std::vector<Formula> all = [] {
    std::vector<Formula> out;
    for (const Entry& entry : table()) out.push_back(entry.formula);
    return out;
  }();
  return all;
}

std::string usage(const Formula& formula) {
  std::string out = formula.name;
  for (const FormulaParameter& parameter : formula.parameters) {
    std::string name = parameter.name;
    std::ranges::transform(name, name.begin(), [](char c) { return c >= 'a' && c <= 'z' ? char(c - 'a' + 'A') : c; });
    out += parameter.fallback.empty() ? " " + name : " [" + name + "=" + parameter.fallback + "]";
  }
  return out;
}

std::string to_string(const FormulaValue& value) {
  if (const bool* yes = std::get_if<bool>(&value.value)) return *yes ? "true" : "false";
  return shortest(std::get<double>(value.value));
}

std::vector<FormulaValue> evaluate_formula(const std::string& name, const std::vector<std::string>& arguments) {
  const auto& [formula, evaluate] = find(name);
  const auto& parameters = formula.parameters;
  const auto required = static_cast<std::size_t>(
      std::ranges::count_if(parameters, [](const FormulaParameter& p) { return p.fallback.empty(); }));
  if (arguments.size() < required || arguments.size() > parameters.size()) {
    std::string expected = std::to_string(required);
    if (required < parameters.size()) expected += " to " + std::to_string(parameters.size());
    throw InputError(formula.name + ": expects " + expected + (expected == "1" ? " argument" : " arguments") +
                     ", not " + std::to_string(arguments.size()) + ": " + usage(formula));
  }
  Arguments values;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    values.push_back(
        read_argument(formula, parameters[i], i < arguments.size() ? arguments[i] : parameters[i].fallback));
  return evaluate(values);
}

std::string formula_text(const std::vector<FormulaValue>& values) {
  if (values.size() == 1) return to_string(values.front()) + "\n";
  std::string out;
  for (const FormulaValue& value : values) out += value.key + " " + to_string(value) + "\n";
  return out;
}

std::int64_t optimal_segment(std::int64_t layers) {
  check(layers >= 0, "optimal_segment of a negative number of layers");
  std::int64_t root = 0;
  while ((root + 1) * (root + 1) <= layers) ++root;
  return layers - root * root > root ? root + 1 : root;  // (root + 1/2)^2 = root^2 + root + 1/4
}

bool should_recompute(std::string_view layer_type, double activation_bytes, double recompute_flops_ratio,
                      const RecomputeLimits& limits) {
  if (layer_type == "attention") return activation_bytes > limits.attention_bytes;
  if (layer_type == "ffn" && activation_bytes > limits.ffn_bytes) return recompute_flops_ratio < limits.ffn_flops_ratio;
  return false;
}

}  // namespace tidemark
