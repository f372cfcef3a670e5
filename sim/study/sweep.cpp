#include "tidemark/study/sweep.hpp"

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <thread>
#include <utility>

#include "tidemark/base/errors.hpp"
#include "tidemark/report/csv.hpp"
#include "tidemark/study/facts.hpp"
#include "tidemark/study/pipeline.hpp"

namespace tidemark {
namespace {

std::string number(double value) {
  std::array<char, 32> buffer{};
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return {buffer.data(), result.ptr};
}
std::string number(bool value) { return value ? "true" : "false"; }
std::string number(std::int64_t value) { return std::to_string(value); }
template <class Kind, class Count>
std::string number(Quantity<Kind, Count> value) {
  return to_string(Int128{value.count});
}
template <class Value>
std::string number(const std::optional<Value>& value) {
  return value ? number(*value) : "";
}

/// One column: its name and its value stand together, so that header and rows cannot part.
struct Column {
  const char* name;
  std::string (*value)(const Summary&);
};
constexpr Column columns[] = {
    {"parameters", [](const Summary& s) { return number(s.parameters); }},
    {"peak_bytes", [](const Summary& s) { return number(s.peak().peak.bytes); }},
    {"peak_step", [](const Summary& s) { return number(std::int64_t{s.peak().peak.step}); }},
    {"peak_time_ns", [](const Summary& s) { return number(s.peak().peak.time); }},
    {"peak_op", [](const Summary& s) { return s.peak().peak.op; }},
    {"peak_phase", [](const Summary& s) { return std::string(to_string(s.peak().peak.phase)); }},
    {"forward_end_bytes", [](const Summary& s) { return number(s.last().forward_end); }},
    {"steady_bytes", [](const Summary& s) { return number(s.last().end); }},
    {"allocated_peak_bytes", [](const Summary& s) { return number(s.allocated_peak); }},
    {"reserved_peak_bytes", [](const Summary& s) { return number(s.reserved_peak); }},
    {"fits", [](const Summary& s) { return number(s.fits); }},
    {"margin_bytes", [](const Summary& s) { return number(s.margin); }},
    {"flops_forward", [](const Summary& s) { return number(s.last().flops.forward); }},
    {"flops_recompute", [](const Summary& s) { return number(s.last().flops.recompute); }},
    {"flops_backward", [](const Summary& s) { return number(s.last().flops.backward); }},
    {"flops_total", [](const Summary& s) { return number(s.last().flops.total); }},
    {"flops_model", [](const Summary& s) { return number(s.last().model_flops); }},
    {"recompute_overhead", [](const Summary& s) { return number(s.last().recompute_overhead); }},
    {"time_step_ns", [](const Summary& s) { return number(s.last().time.step); }},
    {"mfu", [](const Summary& s) { return number(s.last().mfu); }},
    {"hfu", [](const Summary& s) { return number(s.last().hfu); }},
    {"events", [](const Summary& s) { return number(static_cast<std::int64_t>(s.events)); }},
    {"ops", [](const Summary& s) { return number(static_cast<std::int64_t>(s.ops)); }},
};

struct Row {
  std::string figures;  // the columns' fields, each with a comma before it
  std::string error;
  Bytes peak;
  Int128 cost = 0;  // nanoseconds, or FLOPs where they are 0
  bool pareto = false;
  bool done = false;
};

std::vector<std::string> values_at(const Study& study, std::int64_t index) {
  std::vector<std::string> out(study.axes.size());
  for (std::size_t i = study.axes.size(); i-- > 0;) {
    const auto count = static_cast<std::int64_t>(study.axes[i].values.size());
    out[i] = study.axes[i].values[static_cast<std::size_t>(index % count)];
    index /= count;
  }
  return out;
}

Row row_at(const Study& study, std::int64_t index) {
  Row row;
  row.done = true;
  try {
    const Scenario scenario = scenario_at(study, values_at(study, index));
    const Run result = run(scenario);
    ScenarioFacts facts = plain_facts(scenario);
    facts.top = 0;
    const Summary summary = summarize(result.step, result.timeline, facts);
    for (const Column& column : columns) row.figures += "," + csv_field(column.value(summary));
    row.peak = summary.peak().peak.bytes;
    const StepFigures& last = summary.last();
    row.cost = last.time.step.count > 0 ? Int128{last.time.step.count} : last.flops.total.count;
  } catch (const InputError& error) {
    row.error = error.what();
    row.figures = std::string(std::size(columns), ',');
  }
  return row;
}

/// Sorted by peak then cost, a point is on the front when it costs less than all before it.
void mark_front(std::vector<Row>& rows) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i].error.empty()) order.push_back(i);
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    return std::pair(rows[a].peak, rows[a].cost) < std::pair(rows[b].peak, rows[b].cost);
  });
  const Row* best = nullptr;
  for (const std::size_t i : order) {
    const bool same = best != nullptr && rows[i].peak == best->peak && rows[i].cost == best->cost;
    if (best != nullptr && !same && rows[i].cost >= best->cost) continue;
    rows[i].pareto = true;
    best = &rows[i];
  }
}

}  // namespace

std::optional<std::int64_t> point_count(const Study& study) {
  std::optional<std::int64_t> points = 1;
  for (const Axis& axis : study.axes)
    if (points) points = checked_product(*points, static_cast<std::int64_t>(axis.values.size()));
  return points;
}

SweepOutcome sweep(const Study& study, const SweepOptions& options, const std::function<void(std::string_view)>& sink) {
  const std::optional<std::int64_t> points = point_count(study);
  constexpr std::int64_t most = 10'000'000;
  if (!points || *points > most)
    throw InputError({study.file}, "the study has " +
                                       (points ? std::to_string(*points) : std::string("more than 2^63")) +
                                       " points; at most " + std::to_string(most) + " are run");
  const int jobs =
      options.jobs > 0 ? options.jobs : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const tbb::global_control threads(tbb::global_control::max_allowed_parallelism, static_cast<std::size_t>(jobs));
  std::vector<Row> rows(static_cast<std::size_t>(*points));
  constexpr std::int64_t chunk = 64;
  std::int64_t done = 0;
  const auto stopped = [&] { return options.stop != nullptr && options.stop->load(); };
  while (done < *points && !stopped()) {
    const std::int64_t end = std::min(done + chunk * jobs, *points);
    tbb::parallel_for(done, end, [&](std::int64_t i) {
      if (!stopped()) rows[static_cast<std::size_t>(i)] = row_at(study, i);
    });
    while (done < end && rows[static_cast<std::size_t>(done)].done) ++done;
    if (options.progress) options.progress(done, *points);
  }
  rows.resize(static_cast<std::size_t>(done));
  const bool whole = done == *points;
  if (whole) mark_front(rows);

  std::string header = "index";
  for (const Axis& axis : study.axes) header += "," + csv_field(axis.key);
  for (const Column& column : columns) header += std::string(",") + column.name;
  sink(header + ",pareto,error\n");
  SweepOutcome outcome{*points, done, 0};
  for (std::int64_t i = 0; i < done; ++i) {
    const Row& row = rows[static_cast<std::size_t>(i)];
    std::string line = std::to_string(i);
    for (const std::string& value : values_at(study, i)) line += "," + csv_field(value);
    line += row.figures;
    line += !whole || !row.error.empty() ? "," : row.pareto ? ",1" : ",0";
    sink(line + "," + csv_field(row.error) + "\n");
    if (!row.error.empty()) ++outcome.failed;
  }
  return outcome;
}

}  // namespace tidemark
