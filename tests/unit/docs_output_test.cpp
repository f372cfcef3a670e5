// docs/output.md must know every column and key there is.

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <sstream>

#include "support/tide.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/report/csv.hpp"
#include "tidemark/report/json.hpp"
#include "tidemark/study/compare.hpp"

using namespace tidemark;
using tidemark::test::small_tide;

namespace {

std::string page() {
  std::ifstream in("docs/output.md");
  return {std::istreambuf_iterator<char>(in), {}};
}

/// What stands before the first line's end, cut at commas.
std::vector<std::string> columns_of(const std::string& csv) {
  std::vector<std::string> out;
  std::istringstream header(csv.substr(0, csv.find('\n')));
  for (std::string name; std::getline(header, name, ',');) out.push_back(name);
  return out;
}

/// Every text that stands before a colon at the start of a line.
std::vector<std::string> keys_of(const std::string& json) {
  std::vector<std::string> out;
  std::istringstream in(json);
  for (std::string line; std::getline(in, line);) {
    const std::size_t begin = line.find('"');
    const std::size_t end = line.find("\": ");
    if (end != std::string::npos) out.push_back(line.substr(begin + 1, end - begin - 1));
  }
  return out;
}

}  // namespace

TEST_CASE("docs: output.md explains every column and key") {
  const auto made = small_tide();
  const Timeline timeline = simulate(made.step, {});
  std::string timeline_csv, ops_csv;
  write_timeline_csv(made.step, timeline, [&](std::string_view text) { timeline_csv += text; });
  write_ops_csv(made.step, timeline, [&](std::string_view text) { ops_csv += text; });
  std::vector<std::string> names = columns_of(timeline_csv);
  for (const std::string& name : columns_of(ops_csv)) names.push_back(name);
  for (const std::string& name : keys_of(summary_json(summarize(made.step, timeline, {})))) names.push_back(name);
  Run whole;
  whole.step = made.step;
  whole.timeline = timeline;
  const Run empty;
  Comparison comparison = compare(simulated_side("a", whole), simulated_side("b", empty));
  comparison.explanation = explain(whole, whole);
  for (const std::string& name : keys_of(comparison_json(comparison))) names.push_back(name);
  CHECK(names.size() > 100);
  const std::string text = page();
  for (const std::string& name : names) {
    CAPTURE(name);
    CHECK(text.find("`" + name + "`") != std::string::npos);
  }
}
