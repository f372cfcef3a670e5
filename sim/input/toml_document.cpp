// TOML files as documents, by toml++; every value keeps its line and column.
#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

#include <sstream>

#include "tidemark/base/errors.hpp"
#include "toml_document.hpp"

namespace tidemark {
namespace {

std::shared_ptr<DocNode> node_at(const std::shared_ptr<const DocSource>& source, const toml::source_region& region) {
  auto out = std::make_shared<DocNode>();
  out->source = source;
  out->line = static_cast<int>(region.begin.line);
  out->column = static_cast<int>(region.begin.column);
  return out;
}

DocPtr converted(const std::shared_ptr<const DocSource>& source, const toml::node& node) {
  const std::shared_ptr<DocNode> out = node_at(source, node.source());
  if (const toml::table* map = node.as_table()) {
    out->kind = DocNode::Kind::map;
    for (const auto& [key, value] : *map) {
      const std::shared_ptr<DocNode> name = node_at(source, key.source());
      name->kind = DocNode::Kind::scalar;
      name->text = std::string(key.str());
      out->entries.push_back({name, converted(source, value)});
    }
  } else if (const toml::array* list = node.as_array()) {
    out->kind = DocNode::Kind::list;
    for (const toml::node& item : *list) out->items.push_back(converted(source, item));
  } else {
    out->kind = DocNode::Kind::scalar;
    if (const auto* text = node.as_string()) {
      out->text = text->get();
      out->quoted = true;
    } else {
      std::ostringstream written;
      node.visit([&](const auto& value) {
        if constexpr (!toml::is_table<decltype(value)> && !toml::is_array<decltype(value)>) written << value;
      });
      out->text = written.str();
    }
  }
  return out;
}

}  // namespace

DocPtr read_toml(const std::string& path) {
  const std::string text = read_text(path, max_document_bytes, "torchtitan settings (TOML)");
  check_text(text, path);
  const auto source = std::make_shared<const DocSource>(DocSource{path, ""});
  try {
    const toml::table root = toml::parse(text, path);
    return converted(source, root);
  } catch (const toml::parse_error& error) {
    throw InputError({path, static_cast<int>(error.source().begin.line), static_cast<int>(error.source().begin.column)},
                     "not valid TOML: " + std::string(error.description()));
  }
}

}  // namespace tidemark
