#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <sstream>
#include <string>

#include "tidemark/input/document.hpp"
#include "tidemark/input/tree_builder.hpp"

namespace tidemark {
namespace {

/// yaml-cpp's events, not its nodes: its nodes lose repeated keys and the difference between 8 and "8", and change
/// when they are read.
class Handler : public YAML::EventHandler {
 public:
  explicit Handler(TreeBuilder& tree) : tree_(tree) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ > 0) tree_.fail(mark.line + 1, mark.column + 1, "a second document; expected one");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    tree_.null(mark.line + 1, mark.column + 1, anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    tree_.alias(anchor, mark.line + 1, mark.column + 1);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_tag(mark, tag);
    tree_.scalar(value, tag == "!", mark.line + 1, mark.column + 1, anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    refuse_tag(mark, tag);
    tree_.open(DocNode::Kind::list, mark.line + 1, mark.column + 1, anchor);
  }
  void OnSequenceEnd() override { tree_.close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    refuse_tag(mark, tag);
    tree_.open(DocNode::Kind::map, mark.line + 1, mark.column + 1, anchor);
  }
  void OnMapEnd() override { tree_.close(); }

 private:
  /// "?" is a plain value, "!" a quoted one; anything else was written by the user.
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (!tag.empty() && tag != "?" && tag != "!")
      tree_.fail(mark.line + 1, mark.column + 1, "tags are not read: '" + shown(std::string_view(tag)) + "'");
  }

  TreeBuilder& tree_;
  int documents_ = 0;
};

}  // namespace

DocPtr parse_yaml(const std::string& text, const DocSource& source) {
  check_text(text, source.name);
  TreeBuilder tree(source);
  try {
    std::istringstream in(text);
    YAML::Parser parser(in);
    Handler handler(tree);
    while (parser.HandleNextDocument(handler)) {
    }
  } catch (const YAML::Exception& error) {
    tree.fail(error.mark.line + 1, error.mark.column + 1, "not valid YAML: " + error.msg);
  }
  return tree.root();
}

}  // namespace tidemark
