#include "tidemark/input/settings.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace tidemark {
namespace {

/// Blocks that may be written as one word, and the key that the word is.
constexpr std::array<std::pair<std::string_view, std::string_view>, 5> short_forms = {{{"profile", "preset"},
                                                                                       {"policy", "kind"},
                                                                                       {"optimizer", "kind"},
                                                                                       {"allocator", "kind"},
                                                                                       {"checkpointing", "kind"}}};

DocPtr make_scalar(const DocNode& at, std::string text) {
  auto node = std::make_shared<DocNode>();
  node->kind = DocNode::Kind::scalar;
  node->text = std::move(text);
  node->source = at.source;
  node->line = at.line;
  node->column = at.column;
  return node;
}

std::vector<std::string> split(const std::string& path) {
  std::vector<std::string> out(1);
  for (const char c : path) {
    if (c == '.') {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  return out;
}

/// A copy of `node`, a map or nothing, in which `keys[depth]...` leads to `value`.
DocPtr replaced(const DocPtr& node, const std::vector<std::string>& keys, std::size_t depth, const DocPtr& value) {
  if (depth == keys.size()) return value;
  const DocPtr here = node && depth > 0 ? expanded(node, depth == 1 ? keys[0] : "") : node;
  if (here && here->kind != DocNode::Kind::map && here->kind != DocNode::Kind::null)
    throw InputError(value->where(), "'" + keys[depth - 1] + "' is " + shown(*here) + ", which has no keys to set");
  auto copy = std::make_shared<DocNode>(here ? *here : *value);
  if (!here || here->kind == DocNode::Kind::null) {
    copy->kind = DocNode::Kind::map;
    copy->items.clear();
    copy->entries.clear();
  }
  if (depth == 1 && keys[0] == "policy" && keys[1] == "kind") copy->entries.clear();
  const auto found = std::ranges::find_if(copy->entries, [&](const DocEntry& e) { return e.key->text == keys[depth]; });
  if (found == copy->entries.end()) {
    copy->entries.push_back({make_scalar(*value, keys[depth]), replaced(nullptr, keys, depth + 1, value)});
  } else {
    found->value = replaced(found->value, keys, depth + 1, value);
  }
  return copy;
}

}  // namespace

DocPtr expanded(const DocPtr& node, std::string_view block) {
  const auto form = std::ranges::find(short_forms, block, &std::pair<std::string_view, std::string_view>::first);
  if (form == short_forms.end() || node->kind != DocNode::Kind::scalar) return node;
  auto map = std::make_shared<DocNode>(*node);
  map->kind = DocNode::Kind::map;
  map->text.clear();
  map->entries = {{make_scalar(*node, std::string(form->second)), node}};
  return map;
}

DocPtr setting_node(const std::string& value, const std::string& option) {
  DocPtr node = parse_yaml(value, {shown(std::string_view(option)), ""});
  if (node->line != 1) return node;
  auto unplaced = std::make_shared<DocNode>(*node);
  unplaced->line = unplaced->column = 0;  // the option is place enough
  return unplaced;
}

DocPtr with_node(const DocPtr& document, const std::string& path, const DocPtr& value) {
  return replaced(document, split(path), 0, value);
}

DocPtr with_value(const DocPtr& document, const std::string& path, const std::string& value,
                  const std::string& option) {
  const std::vector<std::string> keys = split(path);
  if (std::ranges::find(keys, "") != keys.end())
    throw InputError({shown(std::string_view(option))}, "expected key.path=value, such as policy.interval=4");
  return replaced(document, keys, 0, setting_node(value, option));
}

DocPtr with_setting(const DocPtr& document, const std::string& setting) {
  const std::size_t equals = setting.find('=');
  if (equals == std::string::npos)
    throw InputError({"--set " + shown(std::string_view(setting))},
                     "expected key.path=value, such as policy.interval=4");
  return with_value(document, setting.substr(0, equals), setting.substr(equals + 1), "--set " + setting);
}

}  // namespace tidemark
