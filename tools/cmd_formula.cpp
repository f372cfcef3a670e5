#include "commands.hpp"
#include "terminal.hpp"
#include "tidemark/formula/formula.hpp"
#include "tidemark/report/json_writer.hpp"

namespace tidemark::cli {
namespace {

/// Every formula with its arguments, its text and what it leaves out.
std::string catalogue(const TerminalStyle& style) {
  std::string text;
  for (const Formula& formula : formulas()) {
    text += wrapped(style, "", usage(formula), Ink::bold);
    text += wrapped(style, "    ", formula.expression);
    text += wrapped(style, "    ", formula.note, Ink::dim);
  }
  return text;
}

std::string as_json(const std::vector<FormulaValue>& values) {
  std::string text = "{";
  for (const FormulaValue& value : values)
    text += (text.size() > 1 ? ",\n  " : "\n  ") + json_string(value.key) + ": " + to_string(value);
  return text + "\n}\n";
}

}  // namespace

int formula_command(const FormulaOptions& options) {
  if (options.name.empty()) {
    print(catalogue(terminal_style()));
    return exit_yes;
  }
  const std::vector<FormulaValue> values = evaluate_formula(options.name, options.arguments);
  print(options.json ? as_json(values) : formula_text(values));
  return exit_yes;
}

}  // namespace tidemark::cli
