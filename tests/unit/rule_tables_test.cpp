#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "support/rules.hpp"

TEST_CASE("docs/memory-model.md prints the rules as they are") {
  std::ifstream file("docs/memory-model.md");
  const std::string page{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::string begin = "<!-- rule tables: printed by build/dev/tests/print_rule_tables -->\n";
  const std::size_t from = page.find(begin);
  const std::size_t to = page.find("<!-- end of rule tables -->");
  REQUIRE(from != std::string::npos);
  REQUIRE(to != std::string::npos);
  const std::string printed = page.substr(from + begin.size(), to - from - begin.size());
  const bool same = printed == tidemark::test::rule_tables();
  CHECK_MESSAGE(same, "replace what stands between the markers by the output of build/dev/tests/print_rule_tables");
}
