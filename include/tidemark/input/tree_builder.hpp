/// How does a stream of parser events become a tree, within bounds?
///
/// The YAML and the JSON parser both push their events here, so depth, number of values, repeated keys and aliases are
/// judged once, while parsing: a bomb is refused before it is unpacked.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tidemark/input/document.hpp"

namespace tidemark {

class TreeBuilder {
 public:
  explicit TreeBuilder(const DocSource& source) : source_(std::make_shared<const DocSource>(source)) {}

  /// Anchors are numbers above 0; 0 is none.
  void open(DocNode::Kind kind, int line, int column, std::size_t anchor = 0);
  void close();
  void scalar(std::string text, bool quoted, int line, int column, std::size_t anchor = 0);
  void null(int line, int column, std::size_t anchor = 0);
  void alias(std::size_t anchor, int line, int column);

  [[noreturn]] void fail(int line, int column, const std::string& message) const;
  /// The finished tree; a null node when there were no events.
  DocPtr root() const;

 private:
  struct Frame {
    std::shared_ptr<DocNode> node;
    std::size_t anchor = 0;
    DocPtr key;                                  // of a map: waiting for its value
    std::unordered_map<std::string, int> lines;  // of a map: where each key stands
  };
  std::shared_ptr<DocNode> make(DocNode::Kind kind, int line, int column) const;
  void place(const DocPtr& node, std::size_t anchor);
  void accept_key(const DocPtr& key);

  std::shared_ptr<const DocSource> source_;
  std::vector<Frame> open_;
  std::map<std::size_t, DocPtr> anchors_;
  DocPtr root_;
};

}  // namespace tidemark
