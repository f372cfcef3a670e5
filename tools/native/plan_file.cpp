#include "plan_file.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>
#include <tuple>

namespace tidemark::native {
namespace {

/// One line "  - {op: forward, layer: 3, ops: [a, b], keep: input, region: 0}".
class StepLine {
 public:
  StepLine(std::string_view text, std::string where) : text_(text), where_(std::move(where)) {}

  PlanStep read() {
    PlanStep step;
    expect("-");
    expect("{");
    do {
      const std::string key = word();
      expect(":");
      if (key == "op")
        step.op = word();
      else if (key == "layer")
        step.layer = word();
      else if (key == "keep")
        step.keep = word();
      else if (key == "region")
        word();
      else if (key == "ops")
        step.ops = list();
      else
        fail("unknown key '" + key + "'");
    } while (take(","));
    expect("}");
    if (!at_end()) fail("text after the step");
    static constexpr std::string_view known[] = {"forward", "recompute", "loss", "backward", "drop"};
    if (std::ranges::find(known, step.op) == std::end(known)) fail("op '" + step.op + "' is not one this program has");
    return step;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw Mistake(where_ + ": error: " + what); }
  void skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool at_end() {
    skip_spaces();
    return at_ == text_.size();
  }
  bool take(std::string_view mark) {
    skip_spaces();
    if (text_.substr(at_, mark.size()) != mark) return false;
    at_ += mark.size();
    return true;
  }
  void expect(std::string_view mark) {
    if (!take(mark)) fail("expected '" + std::string(mark) + "' in a step of the plan");
  }
  std::string word() {
    skip_spaces();
    const bool quoted = take("\"");
    const std::size_t end = std::min(text_.find_first_of(quoted ? "\"" : ",:]} ", at_), text_.size());
    std::string out(text_.substr(at_, end - at_));
    at_ = end;
    if (quoted) expect("\"");
    if (out.empty()) fail("expected a word in a step of the plan");
    return out;
  }
  std::vector<std::string> list() {
    std::vector<std::string> out;
    expect("[");
    do out.push_back(word());
    while (take(","));
    expect("]");
    return out;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string where_;
};

}  // namespace

Plan parse_plan(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  std::string line;
  Plan plan;
  bool in_steps = false;
  for (int number = 1; std::getline(lines, line); ++number) {
    const std::string where = name + ":" + std::to_string(number);
    if (line.empty() || line[0] == '#') continue;
    if (line[0] != ' ') {
      in_steps = line == "steps:";
      if (!in_steps && line != "warnings:")
        throw Mistake(where + ": error: this program runs plans as they stand; expected 'steps:', not '" + line + "'");
    } else if (in_steps) {
      plan.push_back(StepLine(line, where).read());
    }
  }
  if (plan.empty()) throw Mistake(name + ": error: no steps; expected a plan as 'tidemark run --plan-out' writes it");
  return plan;
}

Plan read_plan(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw Mistake(path + ": error: cannot be read; expected a plan (YAML)");
  return parse_plan(text.str(), path);
}

std::int64_t segment_length(const Plan& plan, std::int64_t layers) {
  using Row = std::tuple<std::string, std::string, std::string>;
  std::vector<Row> given;
  for (const PlanStep& step : plan)
    if (step.op != "loss" && step.layer != "loss" && step.ops.empty())
      given.emplace_back(step.op, step.layer, step.keep);
  std::int64_t segment = 0;
  for (const auto& [op, layer, keep] : given) {
    if (op != "forward" || keep == "all" || (segment > 0 && keep == "input")) break;
    ++segment;
  }
  std::vector<Row> known;
  for (std::int64_t i = 0; i < layers; ++i)
    known.emplace_back("forward", std::to_string(i), segment == 0 ? "all" : i % segment == 0 ? "input" : "none");
  const std::int64_t length = segment == 0 ? layers : segment;
  for (std::int64_t begin = (layers - 1) / length * length; begin >= 0; begin -= length) {
    const std::int64_t end = std::min(begin + length, layers);
    for (std::int64_t i = begin; segment > 0 && i < end; ++i) known.emplace_back("recompute", std::to_string(i), "all");
    for (std::int64_t i = end - 1; i >= begin; --i) known.emplace_back("backward", std::to_string(i), "all");
  }
  if (known != given || std::ranges::any_of(plan, [](const PlanStep& step) { return !step.ops.empty(); }))
    throw Mistake("error: the MLP runs segments of one length over all of its " + std::to_string(layers) +
                  " layers, each again right before its backward; the plan is another");
  return segment;
}

}  // namespace tidemark::native
