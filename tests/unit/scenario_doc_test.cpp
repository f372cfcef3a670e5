// Does docs/scenario.md list every key, and does what it shows as a scenario work?
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/key_tables.hpp"
#include "tidemark/input/document.hpp"
#include "tidemark/input/scenario.hpp"

using namespace tidemark;

namespace {

std::string doc() { return read_text("docs/scenario.md", max_document_bytes, "the documentation"); }

}  // namespace

TEST_CASE("docs/scenario.md has the table of every block of keys") {
  const std::string text = doc();
  const std::vector<test::DocTable> tables = test::doc_tables();
  CHECK(tables.size() > 20);
  for (const test::DocTable& table : tables) {
    CAPTURE(table.name);
    CAPTURE(table.text);
    CHECK(text.find(table.text) != std::string::npos);
  }
}

TEST_CASE("docs/scenario.md shows scenarios that can be read") {
  const std::string text = doc();
  const std::string fence = "```yaml\n";
  int examples = 0;
  for (std::size_t at = text.find(fence); at != std::string::npos; at = text.find(fence, at + 1)) {
    const std::size_t begin = at + fence.size();
    const std::string yaml = text.substr(begin, text.find("```", begin) - begin);
    if (yaml.find("model:") == std::string::npos) continue;
    CAPTURE(yaml);
    CHECK_NOTHROW(parse_scenario(yaml, "scenarios/s.yaml"));
    ++examples;
  }
  CHECK(examples >= 4);
}
