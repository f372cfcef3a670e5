#include <doctest/doctest.h>

#include <cstdio>
#include <fstream>

#include "tidemark/base/errors.hpp"
#include "tidemark/input/study_file.hpp"

using namespace tidemark;

TEST_CASE("axes: lists, ranges, and values that are no ranges") {
  struct Case {
    std::string name, text;
    std::vector<std::string> values;
  };
  const Case cases[] = {
      {"a range", "k=1..4", {"1", "2", "3", "4"}},
      {"one value", "k=3..3", {"3"}},
      {"by a step", "k='8..32 by 8'", {"8", "16", "24", "32"}},
      {"a step that passes the end", "k='1..6 by 4'", {"1", "5"}},
      {"growing", "k='1..20 x2'", {"1", "2", "4", "8", "16"}},
      {"a list", "k=[1, full, {kind: none}, [a, b]]", {"1", "full", "{kind: none}", "[a, b]"}},
      {"a word", "k=full", {"full"}},
      {"a size", "k=40GiB", {"40GiB"}},
      {"sizes", "k='16GiB..80GiB by 32GiB'", {"16GiB", "48GiB", "80GiB"}},
      {"decimals", "k='0.05..0.2 by 0.05'", {"0.05", "0.1", "0.15", "0.2"}},
      {"in equal ratios", "k='1..1000 log 4'", {"1", "10", "100", "1000"}},
      {"in equal ratios, equal ones once", "k='1..4 log 10'", {"1", "2", "3", "4"}},
      {"in equal ratios of sizes", "k='1MB..16MB log 3'", {"1MB", "4MB", "16MB"}},
      {"in equal ratios, the last as written", "k='1..1000000000000001 log 2'", {"1", "1000000000000001"}},
      {"subsets", "k={subsets: [a, b, c]}", {"[a]", "[b]", "[a, b]", "[c]", "[a, c]", "[b, c]", "[a, b, c]"}},
      {"subsets of a size", "k={subsets: [a, b, c], at_least: 2, at_most: 2}", {"[a, b]", "[a, c]", "[b, c]"}},
      {"the empty subset when asked for", "k={subsets: [a], at_least: 0}", {"[]", "[a]"}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(parse_axis(c.text) == Axis{"k", c.values});
  }
}

TEST_CASE("axes: what is no range is said to be none") {
  struct Case {
    std::string name, text;
  };
  const Case cases[] = {{"backward", "k=4..1"},
                        {"no end", "k=1.."},
                        {"a word", "k=1..two"},
                        {"no step", "k='1..4 by 0'"},
                        {"growing by 1", "k='1..4 x1'"},
                        {"from 0", "k='0..4 x2'"},
                        {"another rule", "k='1..4 step 2'"},
                        {"unlike units", "k='1MB..4GB by 1MB'"},
                        {"a step of another unit", "k='1GB..2GB by 500MB'"},
                        {"decimals without a step", "k=0.5..2"},
                        {"one value in equal ratios", "k='1..4 log 1'"},
                        {"subsets of nothing", "k={subsets: []}"},
                        {"subsets of a word", "k={subsets: a}"},
                        {"subsets of too many", "k={subsets: [a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r,s,t,u]}"},
                        {"another key beside subsets", "k={subsets: [a], most: 1}"},
                        {"a bound that is no number", "k={subsets: [a], at_most: all}"},
                        {"leading zeros", "k=01..4"}};
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK_THROWS_AS((void)parse_axis(c.text), InputError);
  }
  CHECK_THROWS_AS((void)parse_axis("k"), InputError);
  CHECK_THROWS_AS((void)parse_axis("=1"), InputError);
}

namespace {

/// A study file of this text, gone with the test.
struct StudyFile {
  explicit StudyFile(const std::string& text) { std::ofstream(path) << text; }
  ~StudyFile() { std::remove(path.c_str()); }
  StudyFile(const StudyFile&) = delete;
  StudyFile& operator=(const StudyFile&) = delete;
  std::string path = "study_file_test.yaml";
};

const std::string chain =
    "model: {family: chain, layers: 12, layer_activation: 10MB}\npolicy: {kind: interval, interval: 1}\n";

/// "index: values" of every point.
std::vector<std::string> points(const Study& study) {
  std::vector<std::string> out;
  for (std::int64_t i = 0; i < *grid_size(study); ++i) {
    if (!is_wanted(study, i)) continue;
    std::string line = std::to_string(i) + ":";
    for (const std::string& value : values_at(study, i)) line += " " + value;
    out.push_back(line);
  }
  return out;
}

std::string message_of(const std::string& text, const std::vector<std::string>& vary = {}) {
  const StudyFile file(text);
  try {
    (void)points(read_study(file.path, vary));
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("studies: products, zips and conditions") {
  struct Case {
    std::string name, sweep;
    std::vector<std::string> points;
  };
  const Case cases[] = {
      {"a product, the last axis fastest",
       "  policy.interval: [1, 2]\n  steps: [1, 3]\n",
       {"0: 1 1", "1: 1 3", "2: 2 1", "3: 2 3"}},
      {"a zip",
       "  zip: {policy.interval: [1, 2], steps: [1, 3]}\n  budget: [1MB, 2MB]\n",
       {"0: 1 1 1MB", "1: 1 1 2MB", "2: 2 3 1MB", "3: 2 3 2MB"}},
      {"two zips",
       "  zip:\n    - {policy.interval: [1, 2], steps: [1, 3]}\n    - {budget: [1MB], name: [x]}\n",
       {"0: 1 1 1MB x", "1: 2 3 1MB x"}},
      {"divisors of what the scenario gives",
       "  policy.interval: 1..12\n  where: model.layers % policy.interval == 0\n",
       {"0: 1", "1: 2", "2: 3", "3: 4", "5: 6", "11: 12"}},
      {"products before sums, several conditions",
       "  policy.interval: 1..3\n  steps: 1..3\n"
       "  where:\n    - 1 + policy.interval * steps < 5\n    - policy.interval != steps\n",
       {"1: 1 2", "2: 1 3", "3: 2 1", "6: 3 1"}},
      {"a difference",
       "  policy.interval: [1, 2, 5]\n  steps: [1, 4]\n  where: policy.interval - steps == 1\n",
       {"2: 2 1", "5: 5 4"}},
      {"words and sizes",
       "  policy.kind: [none, full]\n  budget: [1MB, 1MiB]\n  where:\n    - policy.kind == full\n    - budget > "
       "1000kB\n",
       {"3: full 1MiB"}},
      {"nothing wanted", "  steps: 1..3\n  where: steps > 3\n", {}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const StudyFile file(chain + "sweep:\n" + c.sweep);
    CHECK(points(read_study(file.path, {})) == c.points);
  }
}

TEST_CASE("studies: kinds are set before what belongs to them") {
  const StudyFile file(chain + "sweep:\n  policy.interval: [3]\n  policy.kind: [interval]\n");
  const Study study = read_study(file.path, {});
  const Scenario scenario = scenario_at(study, values_at(study, 0));
  CHECK(std::get<policy::Interval>(scenario.policy.kind).interval == 3);
}

TEST_CASE("studies: mistakes are found before anything runs") {
  struct Case {
    std::string name, sweep;
    std::vector<std::string> vary;
    std::string message;
  };
  const Case cases[] = {
      {"no axes", "", {}, "nothing to sweep"},
      {"an empty axis", "sweep: {policy.interval: []}", {}, "no values"},
      {"a misspelt key", "sweep: {policy.intervall: [1]}", {}, "did you mean 'policy.interval'?"},
      {"a key of another kind", "sweep: {policy.segments: [1]}", {}, "no key of a scenario is called"},
      {"a key of another family", "sweep: {model.heads: [1]}", {}, "no key of a scenario is called"},
      {"a key below a number", "sweep: {steps.more: [1]}", {}, "'steps' has no keys below it"},
      {"an axis twice", "sweep: {steps: [1], zip: {steps: [1]}}", {}, "swept twice"},
      {"a zip of unlike lengths", "sweep: {zip: {steps: [1, 2], policy.interval: [1]}}", {}, "as many of each"},
      {"a zip that --vary breaks", "sweep: {zip: {steps: [1], budget: [1MB]}}", {"steps=1..2"}, "as many of each"},
      {"a zip of nothing", "sweep: {steps: [1], zip: {}}", {}, "'zip' has no key paths"},
      {"a zip of a word", "sweep: {zip: steps}", {}, "'zip' must be a map"},
      {"no comparison", "sweep: {steps: [1], where: steps}", {}, "must be a condition"},
      {"two comparisons", "sweep: {steps: [1], where: 1 < steps < 3}", {}, "must be a condition"},
      {"half a sum", "sweep: {steps: [1], where: steps + < 3}", {}, "must be a condition"},
      {"a condition on nothing", "sweep: {steps: [1], where: batch.size < 3}", {}, "is no axis"},
      {"words in order", "sweep: {steps: [1], where: policy.kind < full}", {}, "words can only be compared"},
      {"a remainder by 0", "sweep: {steps: [1], where: steps % 0 == 1}", {}, "remainder by 0"},
      {"past 2^63", "sweep: {steps: [1], where: steps * 9000000000000000000 * 9 > 1}", {}, "passes 2^63"},
      {"a list of lists", "sweep: {steps: [1], where: [[steps > 1]]}", {}, "a condition or a list"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const std::string message = message_of(chain + c.sweep + "\n", c.vary);
    CAPTURE(message);
    CHECK(message.find(c.message) != std::string::npos);
  }
  // where the kind itself is swept, every kind's keys are
  CHECK(message_of(chain + "sweep: {policy.kind: [sequential], policy.segments: [2]}\n").empty());
}
