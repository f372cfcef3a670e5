// Does any input, however broken, end in a value or in one InputError with a place?
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tidemark/base/errors.hpp"
#include "tidemark/input/document.hpp"
#include "tidemark/input/plan_file.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/plan/policy.hpp"

using namespace tidemark;

namespace {

using Random = std::mt19937_64;

std::size_t below(Random& random, std::size_t bound) { return static_cast<std::size_t>(random() % bound); }

/// What the yaml-cpp scanner, the readers and their numbers find hardest.
const std::vector<std::string> fragments = {"[",
                                            "]",
                                            "{",
                                            "}",
                                            ": ",
                                            ",",
                                            "- ",
                                            "? ",
                                            "&a ",
                                            "*a",
                                            "<<: ",
                                            "!!int ",
                                            "|\n",
                                            ">\n",
                                            "\"",
                                            "'",
                                            "#",
                                            "%",
                                            "@",
                                            "`",
                                            "\t",
                                            "\n",
                                            "\r\n",
                                            std::string(1, '\0'),
                                            "---\n",
                                            "...\n",
                                            "~",
                                            "null",
                                            "true",
                                            "nan",
                                            ".inf",
                                            "-1",
                                            "0",
                                            "010",
                                            "1.5",
                                            "1e9",
                                            "9223372036854775808",
                                            "12abc",
                                            "0.15",
                                            "1 GB",
                                            "1.5 B",
                                            "layers",
                                            "policy",
                                            "kind",
                                            "full",
                                            "model",
                                            "\xEF\xBB\xBF",
                                            "\xFF\xFE",
                                            "\xC3",
                                            "\\u0000",
                                            "family: graph",
                                            "file: /",
                                            "config: ."};

/// One edit: bytes dropped, doubled, replaced, or a fragment put in.
std::string mutated(Random& random, std::string text) {
  const std::size_t at = below(random, text.size() + 1);
  const std::size_t count = below(random, 12);
  switch (below(random, 5)) {
    case 0:
      return text.erase(at, count);
    case 1:
      return text.insert(at, text.substr(at, count));
    case 2:
      if (at < text.size()) text[at] = static_cast<char>(below(random, 256));
      return text;
    case 3:
      return text.insert(at, text.substr(below(random, text.size() + 1), count));
    default:
      return text.insert(at, fragments[below(random, fragments.size())]);
  }
}

std::string of_fragments(Random& random) {
  std::string text;
  for (std::size_t i = below(random, 40); i > 0; --i) text += fragments[below(random, fragments.size())];
  return text;
}

/// Bytes of any kind, or, as those seldom get past the first check, letters and line ends.
std::string of_bytes(Random& random) {
  std::string text(below(random, 200), '\0');
  const bool any = below(random, 4) == 0;
  for (char& c : text) c = static_cast<char>(any ? below(random, 256) : ' ' + below(random, 95));
  for (std::size_t ends = any ? 0 : below(random, 6); ends > 0 && !text.empty(); --ends)
    text[below(random, text.size())] = '\n';
  return text;
}

struct Outcome {
  int values = 0;
  int errors = 0;
};

/// Runs `act`; whatever is not a value or a well-made InputError fails the test.
void judge(Outcome& outcome, const std::string& input, const std::function<void()>& act) {
  try {
    act();
    ++outcome.values;
  } catch (const InputError& error) {
    ++outcome.errors;
    const std::string line = error.what();
    CAPTURE(input);
    CAPTURE(line);
    CHECK(line.find('\n') == std::string::npos);
    CHECK_FALSE(error.where().file.empty());
    CHECK_FALSE(error.message().empty());
  } catch (const std::exception& error) {
    FAIL("not an InputError: " << error.what() << " of: " << input);
  }
}

std::vector<std::string> scenario_texts() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator("scenarios"))
    if (entry.path().extension() == ".yaml") paths.push_back(entry.path());
  std::ranges::sort(paths);
  std::vector<std::string> out;
  for (const auto& path : paths) out.push_back(read_text(path.string(), max_document_bytes, "a scenario"));
  return out;
}

}  // namespace

TEST_CASE("input: mutated scenarios give a scenario or one error with a place") {
  Random random(20260729);
  const std::vector<std::string> texts = scenario_texts();
  REQUIRE_FALSE(texts.empty());
  Outcome outcome;
  for (int i = 0; i < 4000; ++i) {
    std::string text = texts[below(random, texts.size())];
    for (std::size_t edits = 1 + below(random, 4); edits > 0; --edits) text = mutated(random, text);
    judge(outcome, text, [&] { parse_scenario(text, "s.yaml"); });
  }
  CHECK(outcome.values > 100);
  CHECK(outcome.errors > 1000);
}

TEST_CASE("input: fragments and bytes of any kind are refused with a place") {
  Random random(7);
  Outcome yaml;
  Outcome json;
  Outcome settings;
  for (int i = 0; i < 6000; ++i) {
    const std::string text = i % 2 == 0 ? of_fragments(random) : of_bytes(random);
    judge(yaml, text, [&] { parse_scenario(text, "s.yaml"); });
    judge(json, text, [&] { parse_json(text, {"s.json", ""}); });
    judge(settings, text, [&] {
      parse_scenario("model: {family: chain, layers: 2}", "s.yaml", {"policy." + text, text});
    });
  }
  CHECK(yaml.errors > 5000);
  CHECK(json.errors > 5000);
  CHECK(settings.errors > 5000);
}

TEST_CASE("input: mutated plans give a plan or one error with a place") {
  Random random(11);
  const Scenario scenario =
      parse_scenario("model: {family: mlp, layers: 3}\npolicy: {kind: selective, recompute: [activation]}", "s.yaml");
  const Outline seen = outline(scenario);
  const std::string written = write_plan(make_plan(scenario.policy, seen), seen);
  Outcome outcome;
  for (int i = 0; i < 2000; ++i) {
    const std::string text = mutated(random, written);
    judge(outcome, text, [&] { parse_plan(text, "p.yaml", seen); });
  }
  CHECK(outcome.values > 100);
  CHECK(outcome.errors > 500);
}
