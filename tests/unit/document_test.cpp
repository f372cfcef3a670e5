// Is every value kept with its place, and everything refused that a strict reader must not accept?
#include "tidemark/input/document.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

using namespace tidemark;

namespace {

const DocSource source{"s.yaml", "dir"};

/// The InputError that `act` throws, in full; "" when it throws none.
std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

/// "line:column" of a value.
std::string place(const DocPtr& node) { return std::to_string(node->line) + ":" + std::to_string(node->column); }

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

/// Nine lists, each of nine times the one before: 9^9 values.
std::string alias_bomb() {
  std::string out = "a: &a [x, x, x, x, x, x, x, x, x]\n";
  for (char name = 'b'; name < 'j'; ++name) {
    const std::string before = std::string("*") + static_cast<char>(name - 1);
    out += std::string(1, name) + ": &" + name + " [" + before + repeated(", " + before, 8) + "]\n";
  }
  return out;
}

}  // namespace

TEST_CASE("document: YAML keeps the place of every value, and what was quoted") {
  //                               123456789012345678
  const DocPtr root = parse_yaml("a: 1\nb: [x, \"8\"]\nc:\n  d: {e: 'f'}\n", source);
  CHECK(place(root->find("a")) == "1:4");
  CHECK(place(root->find("b")) == "2:4");
  CHECK(place(root->find("b")->items[1]) == "2:8");
  CHECK(root->find("b")->items[1]->quoted);
  CHECK_FALSE(root->find("b")->items[0]->quoted);
  CHECK(place(root->find("c")->find("d")->find("e")) == "4:10");
  CHECK(root->find("none") == nullptr);
  CHECK(root->size == 8);
}

TEST_CASE("document: JSON keeps the place of every value") {
  const DocPtr root = parse_json("{\"a\": 1,\n \"b\" : [true, null,-2.5e3],\n\t\"c\": {\"d\\\"\": \"e\"}}", source);
  CHECK(place(root) == "1:1");
  CHECK(place(root->find("a")) == "1:7");
  CHECK(place(root->find("b")) == "2:8");
  CHECK(place(root->find("b")->items[0]) == "2:9");
  CHECK(root->find("b")->items[0]->text == "true");
  CHECK(root->find("b")->items[1]->kind == DocNode::Kind::null);
  CHECK(place(root->find("b")->items[2]) == "2:20");
  CHECK(root->find("b")->items[2]->text == "-2.5e3");
  CHECK(place(root->find("c")->find("d\"")) == "3:15");
  CHECK(root->find("c")->find("d\"")->quoted);
}

TEST_CASE("document: an alias stands for its value, at its own place") {
  const DocPtr root = parse_yaml("a: &x {b: 1}\nc: *x\n", source);
  CHECK(root->find("c")->find("b")->text == "1");
  CHECK(place(root->find("c")) == "2:4");
}

TEST_CASE("document: an empty value has its key's place") {
  const DocPtr root = parse_yaml("a:\nb: ~\n", source);
  CHECK(root->find("a")->kind == DocNode::Kind::null);
  CHECK(place(root->find("a")) == "1:1");
  CHECK(place(root->find("b")) == "2:1");
}

TEST_CASE("document: what is refused while parsing YAML") {
  struct Case {
    std::string name;
    std::string text;
    std::string error;
  };
  const Case cases[] = {
      {"not YAML", "a: b: c", "s.yaml:1:5: error: not valid YAML: illegal map value"},
      {"an open bracket", "a: [1, 2\n", "s.yaml:2:1: error: not valid YAML: end of sequence flow not found"},
      {"a tab as indentation", "a:\n\tb: 1\n", "s.yaml:2:3: error: not valid YAML: illegal map value"},
      {"a repeated key", "a: 1\nb: 2\na: 3\n", "s.yaml:3:1: error: repeated key 'a'; first given on line 1"},
      {"a repeated key in a flow map", "{a: 1, \"a\": 2}",
       "s.yaml:1:8: error: repeated key \"a\"; first given on line 1"},
      {"a merge key", "a: &x {b: 1}\nc:\n  <<: *x\n",
       "s.yaml:3:3: error: merge keys ('<<') are not read; write the keys out"},
      {"a tag", "a: !!int 5", "s.yaml:1:4: error: tags are not read: 'tag:yaml.org,2002:int'"},
      {"a list as a key", "? [a]\n: 1\n",
       "s.yaml:1:3: error: a key must be a plain text, not a list or a map; is a bracket left open?"},
      {"nothing as a key", ": 1\n", "s.yaml:1:1: error: a key must be a plain text, not nothing"},
      {"a second document", "a: 1\n---\nb: 2\n", "s.yaml:2:1: error: a second document; expected one"},
      {"an alias of nothing", "a: *x\n", "s.yaml:1:4: error: not valid YAML: the referenced anchor is not defined"},
      {"an alias inside its own value", "a: &x [*x]\n", "s.yaml:1:8: error: an alias inside the value it names"},
      {"10,000 lists deep", repeated("[", 10'000) + repeated("]", 10'000),
       "s.yaml:1:65: error: nested deeper than 64 levels"},
      {"10,000 maps deep, a line each", "a: {\n" + repeated("b: {\n", 10'000) + repeated("}\n", 10'001),
       "s.yaml:64:4: error: nested deeper than 64 levels"},
      {"10,000 dashes deep", repeated("- ", 10'000) + "x", "s.yaml:1:129: error: nested deeper than 64 levels"},
      {"a character that YAML takes for the end", "a: 1\n\x04zzz: 2\n",
       "s.yaml:2:1: error: byte 0x04 does not belong here; expected UTF-8 text"},
      {"bytes that are no text", "a: \xC3(\n",
       "s.yaml:1:4: error: byte 0xC3 does not belong here; expected UTF-8 text"},
      {"a character written too long", "a: \xE0\x80\x80\n",
       "s.yaml:1:4: error: byte 0xE0 does not belong here; expected UTF-8 text"},
      {"half a pair", "a: \xED\xA0\x80\n", "s.yaml:1:4: error: byte 0xED does not belong here; expected UTF-8 text"},
      {"an alias bomb", alias_bomb(), "s.yaml:7:20: error: more than 2000000 values, aliases expanded"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(error_of([&] { parse_yaml(c.text, source); }) == c.error);
  }
}

TEST_CASE("document: what is refused while parsing JSON") {
  struct Case {
    std::string name;
    std::string text;
    std::string error;
  };
  const Case cases[] = {
      {"YAML", "a: 1", "s.yaml:1:1: error: not valid JSON"},
      {"a missing comma", "{\"a\": 1\n \"b\": 2}", "s.yaml:2:4: error: not valid JSON"},
      {"cut short", "{\"a\": ", "s.yaml:1:7: error: not valid JSON"},
      {"nan", "{\"a\": NaN}", "s.yaml:1:7: error: not valid JSON"},
      {"text after the end", "{} {}", "s.yaml:1:4: error: not valid JSON"},
      {"a repeated key", "{\"a\": 1,\n \"a\": 2}", "s.yaml:2:2: error: repeated key \"a\"; first given on line 1"},
      {"10,000 deep", repeated("[", 10'000) + repeated("]", 10'000),
       "s.yaml:1:65: error: nested deeper than 64 levels"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(error_of([&] { parse_json(c.text, source); }) == c.error);
  }
}

TEST_CASE("document: files that cannot be a scenario") {
  const auto dir = std::filesystem::temp_directory_path() / "tidemark_document_test";
  std::filesystem::create_directories(dir);
  const std::string empty = (dir / "empty.yaml").string();
  const std::string large = (dir / "large.yaml").string();
  std::ofstream(empty).close();
  std::ofstream(large) << "# " << std::string(std::size_t{5} << 20U, 'x');
  struct Case {
    std::string name;
    std::string path;
    std::string error;
  };
  const Case cases[] = {
      {"missing", "none.yaml", "none.yaml: error: no such file; expected a scenario (YAML)"},
      {"a directory", dir.string(), dir.string() + ": error: is a directory; expected a scenario (YAML)"},
      {"empty", empty, empty + ": error: is empty; expected a scenario (YAML)"},
      {"too large", large, large + ": error: is larger than 4 MiB; expected a scenario (YAML) below that size"},
      {"without end", "/dev/zero",
       "/dev/zero: error: is larger than 4 MiB; expected a scenario (YAML) below that size"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(error_of([&] { read_yaml(c.path, "a scenario (YAML)"); }) == c.error);
  }
  std::filesystem::remove_all(dir);
}

TEST_CASE("document: an error is one line, whatever its message quotes") {
  CHECK(std::string(InputError({"a\nb.yaml", 1, 2}, "not 'c\r\nd'").what()) == "a b.yaml:1:2: error: not 'c  d'");
  CHECK(error_of([] { parse_yaml("a: \"\\\nb\\\rc\"", source); }) ==
        "s.yaml:2:4: error: not valid YAML: unknown escape character:  ");
}

TEST_CASE("document: messages show a value on one line, cut when long") {
  CHECK(shown(std::string_view("two")) == "two");
  CHECK(shown(std::string_view("a\nb\x7F")) == "a b ");
  CHECK(shown(std::string_view(std::string(100, 'x'))) == std::string(48, 'x') + "...");
  CHECK(shown(std::string_view(std::string(47, 'x') + "\xC3\xA9y")) == std::string(47, 'x') + "...");
  CHECK(shown(*parse_yaml("{a: 1}", source)) == "a map");
  CHECK(shown(*parse_yaml("[]", source)) == "a list");
  CHECK(shown(*parse_yaml("~", source)) == "nothing");
  CHECK(shown(*parse_yaml("two", source)) == "'two'");
  CHECK(shown(*parse_yaml("'two'", source)) == "\"two\"");
}

TEST_CASE("document: text in any language is text") {
  CHECK(parse_yaml("\xEF\xBB\xBF"
                   "a: \xE9\x87\x8D\xF0\x9F\x8C\x8A\n",
                   source)
            ->find("a")
            ->text == "\xE9\x87\x8D\xF0\x9F\x8C\x8A");
}

TEST_CASE("document: paths are relative to the file that names them") {
  const DocPtr root = parse_yaml("a: b.csv", {"runs/s.yaml", "runs"});
  CHECK(resolve_path(*root->find("a"), "b.csv") == "runs/b.csv");
  CHECK(resolve_path(*root->find("a"), "../b.csv") == "b.csv");
  CHECK(resolve_path(*root->find("a"), "/b.csv") == "/b.csv");
}
