#include "tidemark/input/tree_builder.hpp"

#include <utility>

namespace tidemark {

std::shared_ptr<DocNode> TreeBuilder::make(DocNode::Kind kind, int line, int column) const {
  auto node = std::make_shared<DocNode>();
  node->kind = kind;
  node->source = source_;
  node->line = line;
  node->column = column;
  return node;
}

void TreeBuilder::fail(int line, int column, const std::string& message) const {
  throw InputError({source_->name, line, column}, message);
}

void TreeBuilder::open(DocNode::Kind kind, int line, int column, std::size_t anchor) {
  if (!open_.empty() && open_.back().node->kind == DocNode::Kind::map && !open_.back().key)
    fail(line, column, "a key must be a plain text, not a list or a map; is a bracket left open?");
  if (open_.size() >= static_cast<std::size_t>(max_document_depth))
    fail(line, column, "nested deeper than " + std::to_string(max_document_depth) + " levels");
  open_.push_back({make(kind, line, column), anchor, nullptr, {}});
}

void TreeBuilder::close() {
  const Frame done = std::move(open_.back());
  open_.pop_back();
  place(done.node, done.anchor);
}

void TreeBuilder::scalar(std::string text, bool quoted, int line, int column, std::size_t anchor) {
  auto node = make(DocNode::Kind::scalar, line, column);
  node->text = std::move(text);
  node->quoted = quoted;
  place(node, anchor);
}

void TreeBuilder::null(int line, int column, std::size_t anchor) {
  // What is not there has no place of its own; its key has.
  if (!open_.empty() && open_.back().key) {
    line = open_.back().key->line;
    column = open_.back().key->column;
  }
  place(make(DocNode::Kind::null, line, column), anchor);
}

void TreeBuilder::alias(std::size_t anchor, int line, int column) {
  const auto found = anchors_.find(anchor);
  if (found == anchors_.end()) fail(line, column, "an alias inside the value it names");
  auto copy = std::make_shared<DocNode>(*found->second);  // one level: deeper ones are shared
  copy->line = line;
  copy->column = column;
  place(copy, 0);
}

void TreeBuilder::accept_key(const DocPtr& key) {
  Frame& map = open_.back();
  if (key->kind != DocNode::Kind::scalar)
    fail(key->line, key->column, "a key must be a plain text, not " + shown(*key));
  if (key->text == "<<" && !key->quoted)
    fail(key->line, key->column, "merge keys ('<<') are not read; write the keys out");
  const auto [first, is_new] = map.lines.emplace(key->text, key->line);
  if (!is_new)
    fail(key->line, key->column,
         "repeated key " + shown(*key) + "; first given on line " + std::to_string(first->second));
  map.key = key;
}

void TreeBuilder::place(const DocPtr& node, std::size_t anchor) {
  if (anchor != 0) anchors_[anchor] = node;
  if (open_.empty()) {
    root_ = node;
    return;
  }
  Frame& parent = open_.back();
  if (parent.node->kind == DocNode::Kind::map && !parent.key) return accept_key(node);
  parent.node->size += node->size;
  if (parent.node->size > max_document_values)
    fail(node->line, node->column, "more than " + std::to_string(max_document_values) + " values, aliases expanded");
  if (parent.node->kind == DocNode::Kind::map) {
    parent.node->entries.push_back({std::exchange(parent.key, nullptr), node});
  } else {
    parent.node->items.push_back(node);
  }
}

DocPtr TreeBuilder::root() const { return root_ ? root_ : make(DocNode::Kind::null, 1, 1); }

}  // namespace tidemark
