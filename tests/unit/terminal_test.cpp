#include "tidemark/report/terminal.hpp"

#include <doctest/doctest.h>

using namespace tidemark;

TEST_CASE("terminal: columns are code points") {
  CHECK(columns("") == 0);
  CHECK(columns("abc") == 3);
  CHECK(columns("▁▂ é") == 4);
  CHECK(left("é", 3) == "é  ");
  CHECK(right("é", 3) == "  é");
  CHECK(right("long", 3) == "long");
}

TEST_CASE("terminal: a long name loses its middle") {
  struct Case {
    std::string name, text;
    std::size_t width;
    std::string fine, plain;
  };
  const Case cases[] = {
      {"fits", "abcdef", 6, "abcdef", "abcdef"},
      {"one too long", "abcdefg", 6, "ab…efg", "ab..fg"},
      {"accents count once", "éééééé", 5, "éé…éé", "é..éé"},
      {"no room", "abc", 1, "…", ".."},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(shortened({}, c.text, c.width) == c.fine);
    CHECK(shortened({.ascii = true}, c.text, c.width) == c.plain);
  }
}

TEST_CASE("terminal: a name gives it no orders") {
  struct Case {
    std::string name, text, shown;
  };
  const Case cases[] = {
      {"plain", "layers.0.mlp", "layers.0.mlp"},
      {"other alphabets", "schicht é 層", "schicht é 層"},
      {"an escape sequence", "a\x1b[31mb", "a?[31mb"},
      {"line ends, tab, delete", "a\r\n\tb\x7f", "a???b?"},
      {"nothing", std::string("a\0b", 3), "a?b"},
      {"a control character past U+007F",
       "a\xc2\x9b"
       "31mb",
       "a?31mb"},
      {"no UTF-8", "a\xff\xc3", "a\xef\xbf\xbd\xef\xbf\xbd"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(printable(c.text) == c.shown);
  }
}

TEST_CASE("terminal: ink is written only with color") {
  CHECK(painted({}, Ink::red, "x") == "x");
  CHECK(painted({.color = true}, Ink::red, "x") == "\x1b[31mx\x1b[0m");
  CHECK(painted({.color = true}, Ink::plain, "x") == "x");
  CHECK(painted({.color = true}, Ink::red, "") == "");
}

TEST_CASE("terminal: wrapped lines hang below the text's start") {
  struct Case {
    std::string name, text, lines;
  };
  const Case cases[] = {
      {"nothing", "", ""},
      {"one line", "short", "  - short\n"},
      {"exactly the width", std::string(36, 'x'), "  - " + std::string(36, 'x') + "\n"},
      {"at a space", std::string(20, 'x') + " " + std::string(20, 'y'),
       "  - " + std::string(20, 'x') + "\n    " + std::string(20, 'y') + "\n"},
      {"at two spaces", std::string(20, 'x') + "  " + std::string(20, 'y'),
       "  - " + std::string(20, 'x') + "\n    " + std::string(20, 'y') + "\n"},
      {"a word that is too long", std::string(50, 'x'),
       "  - " + std::string(36, 'x') + "\n    " + std::string(14, 'x') + "\n"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(wrapped({.width = 40}, "  - ", c.text, Ink::plain) == c.lines);
  }
}
