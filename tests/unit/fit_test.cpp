// Does `fit` find the largest value, and say honestly what lies above it?
#include "tidemark/study/fit.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tidemark/base/errors.hpp"

using namespace tidemark;

namespace {

/// A scenario in a file of its own.
class ScenarioFile {
 public:
  explicit ScenarioFile(const std::string& text)
      : path_((std::filesystem::temp_directory_path() / "tidemark_fit_test.yaml").string()) {
    std::ofstream(path_) << text;
  }
  ScenarioFile(const ScenarioFile&) = delete;
  ScenarioFile& operator=(const ScenarioFile&) = delete;
  ~ScenarioFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Without recomputation the peak is 10 MB for each layer and one boundary of 1 MB.
const std::string chain = "model: {family: chain, layers: 4, layer_activation: 10 MB, boundary: 1 MB}\n";

std::optional<std::int64_t> largest(const FitAnswer& answer) {
  return answer.best ? std::optional(answer.best->value) : std::nullopt;
}

}  // namespace

TEST_CASE("fit: the largest value, wherever the search starts") {
  const ScenarioFile file(chain);
  struct Case {
    std::string name;
    Bytes budget;
    std::optional<std::int64_t> start;
    std::int64_t most;
    std::optional<std::int64_t> expected;
  };
  const Case cases[] = {
      {"exactly", Bytes{231'000'000}, {}, 1000, 23},
      {"a byte less", Bytes{230'999'999}, {}, 1000, 22},
      {"from below", Bytes{231'000'000}, 1, 1000, 23},
      {"from above", Bytes{231'000'000}, 900, 1000, 23},
      {"from the answer", Bytes{231'000'000}, 23, 1000, 23},
      {"one", Bytes{11'000'000}, 64, 1000, 1},
      {"none", Bytes{10'999'999}, 64, 1000, {}},
      {"all", Bytes{231'000'000}, {}, 20, 20},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const FitAnswer answer = find_fit(
        {.scenario = file.path(), .key = "model.layers", .budget = c.budget, .start = c.start, .most = c.most});
    CHECK(largest(answer) == c.expected);
    CHECK(answer.by == "live");
    CHECK(answer.exceptions().empty());
    CHECK(answer.failing.has_value() == (c.name != "all"));
    CHECK(answer.ended.empty() == (c.name != "all"));
    if (answer.best && answer.failing) {
      CHECK(answer.failing->value == answer.best->value + 1);
      CHECK(answer.checked_above == 8);
      CHECK(answer.failing->why.starts_with("does not fit, "));
    }
  }
}

TEST_CASE("fit: bytes outside the framework count") {
  const ScenarioFile file(chain + "device: {capacity: 241 MB, non_torch: 10 MB}\n");
  const FitAnswer answer = find_fit({.scenario = file.path(), .key = "model.layers"});
  CHECK(largest(answer) == 23);
  CHECK(answer.limit == Bytes{231'000'000});
  CHECK(answer.non_torch == Bytes{10'000'000});
  const FitAnswer budget = find_fit({.scenario = file.path(), .key = "model.layers", .budget = Bytes{141'000'000}});
  CHECK(largest(budget) == 13);
}

TEST_CASE("fit: with an allocator reserved bytes decide, and running out is an answer") {
  const ScenarioFile file(chain + "allocator: {kind: cuda_caching, capacity: 231 MB}\n");
  const FitAnswer answer = find_fit({.scenario = file.path(), .key = "model.layers"});
  CHECK(answer.by == "reserved");
  REQUIRE(answer.best);
  CHECK(*answer.best->reserved > *answer.best->peak);
  CHECK(*answer.best->reserved <= Bytes{231'000'000});
  CHECK(answer.failing->why.starts_with("out of memory in forward of "));
}

TEST_CASE("fit: more is not always worse") {
  // Peaks by interval: 1 154, 2 92, 4 76, 6 78, 7 88, 8 98, 9 99 MB.
  const ScenarioFile file(
      "model: {family: chain, layers: 16, layer_activation: 10 MB, boundary: 9 MB}\n"
      "policy: {kind: interval, interval: 4}\n");
  const FitAnswer answer = find_fit({.scenario = file.path(), .key = "policy.interval", .budget = Bytes{90'000'000}});
  CHECK(largest(answer) == 7);
  const FitAnswer up = find_fit(
      {.scenario = file.path(), .key = "policy.interval", .budget = Bytes{90'000'000}, .start = 1, .most = 64});
  CHECK(largest(up) == 7);
  CHECK(up.exceptions() == std::vector<std::int64_t>{1, 2});
  CHECK(fit_text(up).find("warning: not monotonic: 1, 2 do not fit\n") != std::string::npos);
}

TEST_CASE("fit: mistakes") {
  const ScenarioFile file(chain);
  struct Case {
    std::string name, key;
    std::vector<std::string> sets;
    std::string message;
  };
  const Case cases[] = {
      {"no such key", "model.layer", {}, "--vary model.layer: error: no such key of a scenario"},
      {"not a number", "policy.kind", {}, "--vary policy.kind: error: not a whole number"},
      {"a block", "model", {}, "--vary model: error: not a whole number"},
      {"no limit", "model.layers", {}, "fit needs a limit"},
      {"a scenario that is refused", "model.layers", {"steps=0"}, "'steps' must be a positive integer"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    std::string message;
    try {
      find_fit({.scenario = file.path(), .key = c.key, .sets = c.sets});
    } catch (const InputError& error) {
      message = error.what();
    }
    CAPTURE(message);
    CHECK(message.find(c.message) != std::string::npos);
  }
}
