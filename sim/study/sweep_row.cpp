#include "tidemark/study/sweep_row.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "tidemark/base/errors.hpp"
#include "tidemark/report/csv.hpp"
#include "tidemark/study/facts.hpp"
#include "tidemark/study/pipeline.hpp"

namespace tidemark {
namespace {

template <class Number>
void put_number(std::string& out, Number value) {
  std::array<char, 32> buffer{};
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  out.append(buffer.data(), result.ptr);
}
void put(std::string& out, double value) { put_number(out, value); }
void put(std::string& out, bool value) { out += value ? "true" : "false"; }
void put(std::string& out, std::int64_t value) { put_number(out, value); }
void put(std::string& out, std::size_t value) { put_number(out, value); }
void put(std::string& out, std::string_view value) { out += csv_field(value); }
template <class Kind>
void put(std::string& out, Quantity<Kind> value) {
  put_number(out, value.count);
}
void put(std::string& out, Flops value) { out += to_string(value.count); }
template <class Value>
void put(std::string& out, const std::optional<Value>& value) {
  if (value) put(out, *value);
}

Bytes at_peak(const Summary& summary, Category category) {
  return summary.peak().at_peak[static_cast<std::size_t>(category)];
}

/// One column: its name and its value stand together, so that header and rows cannot part.
struct Column {
  const char* name;
  void (*put)(std::string&, const Summary&);
};
constexpr Column columns[] = {
    {"parameters", [](std::string& out, const Summary& s) { put(out, s.parameters); }},
    {"peak_bytes", [](std::string& out, const Summary& s) { put(out, s.peak().peak.bytes); }},
    {"peak_step", [](std::string& out, const Summary& s) { put(out, std::int64_t{s.peak().peak.step}); }},
    {"peak_time_ns", [](std::string& out, const Summary& s) { put(out, s.peak().peak.time); }},
    {"peak_op", [](std::string& out, const Summary& s) { put(out, std::string_view(s.peak().peak.op)); }},
    {"peak_phase", [](std::string& out, const Summary& s) { put(out, to_string(s.peak().peak.phase)); }},
    {"forward_end_bytes", [](std::string& out, const Summary& s) { put(out, s.last().forward_end); }},
    {"steady_bytes", [](std::string& out, const Summary& s) { put(out, s.last().end); }},
    {"allocated_peak_bytes", [](std::string& out, const Summary& s) { put(out, s.allocated_peak); }},
    {"reserved_peak_bytes", [](std::string& out, const Summary& s) { put(out, s.reserved_peak); }},
    {"fits", [](std::string& out, const Summary& s) { put(out, s.fits); }},
    {"margin_bytes", [](std::string& out, const Summary& s) { put(out, s.margin); }},
    {"flops_forward", [](std::string& out, const Summary& s) { put(out, s.last().flops.forward); }},
    {"flops_recompute", [](std::string& out, const Summary& s) { put(out, s.last().flops.recompute); }},
    {"flops_backward", [](std::string& out, const Summary& s) { put(out, s.last().flops.backward); }},
    {"flops_total", [](std::string& out, const Summary& s) { put(out, s.last().flops.total); }},
    {"flops_model", [](std::string& out, const Summary& s) { put(out, s.last().model_flops); }},
    {"recompute_overhead", [](std::string& out, const Summary& s) { put(out, s.last().recompute_overhead); }},
    {"time_step_ns", [](std::string& out, const Summary& s) { put(out, s.last().time.step); }},
    {"mfu", [](std::string& out, const Summary& s) { put(out, s.last().mfu); }},
    {"hfu", [](std::string& out, const Summary& s) { put(out, s.last().hfu); }},
    {"events", [](std::string& out, const Summary& s) { put(out, s.events); }},
    {"ops", [](std::string& out, const Summary& s) { put(out, s.ops); }},
    {"peak_parameter_bytes", [](std::string& out, const Summary& s) { put(out, at_peak(s, Category::parameter)); }},
    {"peak_gradient_bytes", [](std::string& out, const Summary& s) { put(out, at_peak(s, Category::gradient)); }},
    {"peak_optimizer_state_bytes",
     [](std::string& out, const Summary& s) { put(out, at_peak(s, Category::optimizer_state)); }},
    {"peak_input_bytes", [](std::string& out, const Summary& s) { put(out, at_peak(s, Category::input)); }},
    {"peak_activation_bytes", [](std::string& out, const Summary& s) { put(out, at_peak(s, Category::activation)); }},
    {"peak_temporary_bytes", [](std::string& out, const Summary& s) { put(out, at_peak(s, Category::temporary)); }},
    {"peak_autograd_detail_bytes",
     [](std::string& out, const Summary& s) { put(out, at_peak(s, Category::autograd_detail)); }},
    {"peak_workspace_bytes", [](std::string& out, const Summary& s) { put(out, at_peak(s, Category::workspace)); }},
    {"time_forward_ns", [](std::string& out, const Summary& s) { put(out, s.last().time.forward); }},
    {"time_recompute_ns", [](std::string& out, const Summary& s) { put(out, s.last().time.recompute); }},
    {"time_backward_ns", [](std::string& out, const Summary& s) { put(out, s.last().time.backward); }},
    {"time_optimizer_ns", [](std::string& out, const Summary& s) { put(out, s.last().time.optimizer); }},
};

constexpr std::string_view method_column = "method";

std::vector<std::string> head_columns(const Study& study) {
  std::vector<std::string> names = {"index"};
  for (const Axis& axis : study.axes) names.push_back(axis.key);
  for (const Column& column : columns) names.emplace_back(column.name);
  names.emplace_back(method_column);
  return names;
}

}  // namespace

std::string sweep_header(const Study& study) {
  std::string out;
  for (const std::string& name : head_columns(study)) out += csv_field(name) + ",";
  return out + "pareto,error\n";
}

std::string row_start(const Study& study, std::int64_t index) {
  std::string out;
  put(out, index);
  out += ',';
  const std::vector<std::size_t> choices = choices_at(study, index);
  for (std::size_t i = 0; i < choices.size(); ++i) {
    out += csv_field(study.axes[i].values[choices[i]]);
    out += ',';
  }
  return out;
}

SweepRow make_row(std::string start, const Summary& summary, SweepMethod method) {
  SweepRow row{std::move(start), "", summary.peak().peak.bytes};
  for (const Column& column : columns) {
    column.put(row.head, summary);
    row.head += ',';
  }
  row.head += method == SweepMethod::composed ? "composed" : "simulated";
  const StepFigures& last = summary.last();
  row.cost = last.time.step.count > 0 ? Int128{last.time.step.count} : last.flops.total.count;
  return row;
}

SweepRow failed_row(std::string start, const std::string& error) {
  return {std::move(start) + std::string(std::size(columns), ','), error, {}, 0};
}

SweepRow simulated_row(const Study& study, std::int64_t index) {
  std::string start = row_start(study, index);
  try {
    const Scenario scenario = scenario_at(study, values_at(study, index));
    const Run result = run(scenario);
    ScenarioFacts facts = plain_facts(scenario);
    facts.top = 0;
    return make_row(std::move(start), summarize(result.step, result.timeline, facts), SweepMethod::simulated);
  } catch (const InputError& error) {
    return failed_row(std::move(start), error.what());
  }
}

std::size_t place_of_column(const Study& study, std::string_view name) {
  const std::vector<std::string> names = head_columns(study);
  const auto found = std::ranges::find(names, name);
  check(found != names.end(), "rows have such a column");
  return static_cast<std::size_t>(found - names.begin());
}

std::string difference(const Study& study, const std::string& head, const std::string& expected) {
  const std::vector<std::string> names = head_columns(study);
  const std::vector<std::string> have = csv_fields(head), want = csv_fields(expected);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string a = i < have.size() ? have[i] : "", b = i < want.size() ? want[i] : "";
    if (names[i] != method_column && a != b) return names[i] + " " + a + ", expected " + b;
  }
  return "";
}

void check_composed(const Study& study, std::int64_t index, const SweepRow& row) {
  const std::string differs = difference(study, row.head, simulated_row(study, index).head);
  check(differs.empty(),
        "the composed row of point " + std::to_string(index) + " is not the simulated one: " + differs);
}

std::vector<std::string> csv_fields(std::string_view line) {
  std::vector<std::string> out(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"') {
      out.back() += c;
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  return out;
}

}  // namespace tidemark
