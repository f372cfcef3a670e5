#include <doctest/doctest.h>

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
                        {"leading zeros", "k=01..4"}};
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK_THROWS_AS((void)parse_axis(c.text), InputError);
  }
  CHECK_THROWS_AS((void)parse_axis("k"), InputError);
  CHECK_THROWS_AS((void)parse_axis("=1"), InputError);
}
