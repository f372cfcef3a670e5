// Does the schema accept what the reader accepts, and refuse what a schema can see?
#include "tidemark/input/schema.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "tidemark/base/errors.hpp"
#include "tidemark/input/document.hpp"
#include "tidemark/input/keys.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/input/study_file.hpp"

using namespace tidemark;

namespace {

/// As much of JSON Schema as the scenario's uses.
class Validator {
 public:
  explicit Validator(DocPtr root) : root_(std::move(root)) {}
  bool accepts(const DocPtr& value) const { return fits(*root_, *value); }

 private:
  static bool matches(const std::string& text, const std::string& pattern) {
    return std::regex_search(text, std::regex(pattern, std::regex::extended));
  }

  static bool is_type(const std::string& type, const DocNode& value) {
    if (type == "object") return value.kind == DocNode::Kind::map;
    if (type == "array") return value.kind == DocNode::Kind::list;
    if (value.kind != DocNode::Kind::scalar) return false;
    const bool boolean = !value.quoted && (value.text == "true" || value.text == "false");
    const bool integer = !value.quoted && matches(value.text, "^-?(0|[1-9][0-9]*)$");
    const bool number = integer || (!value.quoted && matches(value.text, "^-?(0|[1-9][0-9]*)\\.[0-9]+$"));
    if (type == "boolean") return boolean;
    if (type == "integer") return integer;
    if (type == "number") return number;
    return type == "string" && !boolean && !number;
  }

  bool fits(const DocNode& schema, const DocNode& value) const {
    return std::ranges::all_of(schema.entries,
                               [&](const DocEntry& rule) { return obeys(rule.key->text, *rule.value, schema, value); });
  }

  bool obeys(const std::string& rule, const DocNode& setting, const DocNode& schema, const DocNode& value) const {
    const auto fits_item = [&](const DocPtr& option) { return fits(*option, value); };
    if (rule == "$ref") return fits(*root_->find("$defs")->find(setting.text.substr(8)), value);
    if (rule == "anyOf") return std::ranges::any_of(setting.items, fits_item);
    if (rule == "type") {
      if (setting.kind == DocNode::Kind::scalar) return is_type(setting.text, value);
      return std::ranges::any_of(setting.items, [&](const DocPtr& type) { return is_type(type->text, value); });
    }
    if (rule == "enum")
      return std::ranges::any_of(setting.items, [&](const DocPtr& option) { return option->text == value.text; });
    if (rule == "const") return setting.text == value.text;
    if (rule == "pattern") return matches(value.text, setting.text);
    if (rule == "minimum") return std::stod(value.text) >= std::stod(setting.text);
    if (rule == "exclusiveMinimum") return std::stod(value.text) > std::stod(setting.text);
    if (rule == "maximum") return std::stod(value.text) <= std::stod(setting.text);
    if (rule == "items")
      return std::ranges::all_of(value.items, [&](const DocPtr& item) { return fits(setting, *item); });
    if (rule == "required")
      return std::ranges::all_of(setting.items, [&](const DocPtr& key) { return value.find(key->text) != nullptr; });
    if (rule == "properties")
      return std::ranges::all_of(value.entries, [&](const DocEntry& entry) {
        const DocPtr property = setting.find(entry.key->text);
        return property == nullptr || fits(*property, *entry.value);
      });
    if (rule == "additionalProperties")
      return std::ranges::all_of(value.entries, [&](const DocEntry& entry) {
        const DocPtr properties = schema.find("properties");
        if (properties && properties->find(entry.key->text)) return true;
        return setting.kind == DocNode::Kind::map && fits(setting, *entry.value);
      });
    return rule == "$schema" || rule == "$defs" || rule == "title" || rule == "description" || rule == "examples" ||
           rule == "x-default";
  }

  DocPtr root_;
};

Validator validator() { return Validator(parse_json(scenario_schema(), {"schema", ""})); }

bool accepts(const std::string& yaml) { return validator().accepts(parse_yaml(yaml, {"s.yaml", ""})); }

}  // namespace

TEST_CASE("schema: every key of every block stands in it, with its meaning") {
  const DocPtr schema = parse_json(scenario_schema(), {"schema", ""});
  CHECK(schema->find("$schema")->text == "https://json-schema.org/draft/2020-12/schema");
  for (const Block& block : blocks()) {
    if (block.name == "plan" || block.name == "plan_step" || block.name == "stage_plan") continue;
    std::string name = std::string(block.name) + (block.variant.empty() ? "" : "_" + std::string(block.variant));
    std::ranges::replace(name, ' ', '_');
    CAPTURE(name);
    const DocPtr object = block.name == "scenario" ? schema : schema->find("$defs")->find(name);
    REQUIRE(object != nullptr);
    const DocPtr properties = object->find("properties");
    const std::size_t sweep = block.name == "scenario" ? 1 : 0;  // a study's block, which no scenario has
    CHECK(properties->entries.size() == block.keys.size() + sweep);
    for (const Key& key : block.keys) CHECK(properties->find(key.name)->find("description")->text == key.meaning);
  }
}

TEST_CASE("schema: accepts every scenario of the repository") {
  const Validator schema = validator();
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("scenarios")) {
    if (entry.path().extension() != ".yaml") continue;
    const std::string path = entry.path().string();
    CAPTURE(path);
    CHECK(schema.accepts(read_yaml(path, "a scenario (YAML)")));
    CHECK_NOTHROW(read_scenario(path));
    ++count;
  }
  CHECK(count > 0);
}

TEST_CASE("schema: accepts every study of the repository") {
  const Validator schema = validator();
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("scenarios/studies")) {
    const std::string path = entry.path().string();
    CAPTURE(path);
    CHECK(schema.accepts(read_yaml(path, "a study (YAML)")));
    CHECK_NOTHROW(read_study(path, {}));
    ++count;
  }
  CHECK(count > 0);
  const std::string chain = "model: {family: chain, layers: 3}\n";
  CHECK(accepts(chain + "sweep: {steps: 1..3, zip: [{budget: [1MB]}], where: [steps > 1]}"));
  CHECK_FALSE(accepts(chain + "sweep: 3"));
  CHECK_FALSE(accepts(chain + "sweep: {zip: 3}"));
}

TEST_CASE("schema: what it accepts and refuses") {
  const std::string chain = "model: {family: chain, layers: 3}\n";
  struct Case {
    std::string name;
    std::string yaml;
    bool accepted;
  };
  const Case cases[] = {
      {"a chain", chain, true},
      {"one value or a list a layer", "model: {family: chain, layers: 2, boundary: [1 B, 2.5 kB], type: ffn}", true},
      {"a policy as a word", chain + "policy: full", true},
      {"a policy as a map", chain + "policy: {kind: interval, interval: 3, schedule: {on_grad_of: x}}", true},
      {"a device by name, path or map", chain + "device: {flops: {float32: 1 TFLOP/s}}", true},
      {"ranges", chain + "policy: {kind: selective, recompute: [attention], layers: 0-2}", true},
      {"no model", "name: x", false},
      {"an unknown key", chain + "polcy: full", false},
      {"a key of another family", "model: {family: chain, layers: 3, hidden: 8}", false},
      {"a key of another policy", chain + "policy: {kind: full, interval: 3}", false},
      {"an unknown policy", chain + "policy: often", false},
      {"a policy without its interval", chain + "policy: {kind: interval}", false},
      {"a size without unit", chain + "budget: 40", false},
      {"a size with an unknown unit", chain + "budget: 40 gb", false},
      {"half a layer", "model: {family: chain, layers: 1.5}", false},
      {"a fraction above 1", "model: {family: chain, layers: 3, attention_fraction: 1.5}", false},
      {"a degree that is unknown", chain + "parallel: {tensors: 2}", false},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(accepts(c.yaml) == c.accepted);
    bool read = true;
    try {
      parse_scenario(c.yaml, "s.yaml");
    } catch (const InputError&) {
      read = false;
    }
    CHECK(read == c.accepted);
  }
}
