#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tidemark/input/document.hpp"
#include "tidemark/input/tree_builder.hpp"

namespace tidemark {
namespace {

/// The library's events carry no places. They come in the order of the text, and what stands between two of them is
/// space, ',' and ':' only, so each place is found by walking along.
class Handler : public nlohmann::json_sax<nlohmann::json> {
 public:
  Handler(TreeBuilder& tree, std::string_view text) : tree_(tree), text_(text) {
    if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;
  }

  bool null() override {
    begin();
    tree_.null(line_, column());
    at_ += 4;
    return true;
  }
  bool boolean(bool value) override { return plain(value ? "true" : "false"); }
  bool number_integer(number_integer_t) override { return number(); }
  bool number_unsigned(number_unsigned_t) override { return number(); }
  bool number_float(number_float_t, const string_t&) override { return number(); }
  bool string(string_t& value) override { return quoted(value); }
  bool key(string_t& value) override { return quoted(value); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(DocNode::Kind::map); }
  bool start_array(std::size_t) override { return open(DocNode::Kind::list); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    while (at_ + 1 < position && at_ < text_.size()) step();
    tree_.fail(line_, column(), "not valid JSON");
  }

 private:
  int column() const { return static_cast<int>(at_ - line_start_) + 1; }
  void step() {
    if (text_[at_++] == '\n') {
      ++line_;
      line_start_ = at_;
    }
  }
  void begin() {
    while (at_ < text_.size() && std::string_view(" \t\r\n,:").find(text_[at_]) != std::string_view::npos) step();
  }
  bool plain(const std::string& token) {
    begin();
    tree_.scalar(token, false, line_, column());
    at_ += token.size();
    return true;
  }
  bool number() {
    begin();
    const std::size_t end = text_.find_first_not_of("+-.0123456789eE", at_);
    return plain(std::string(text_.substr(at_, end == std::string_view::npos ? end : end - at_)));
  }
  bool quoted(const std::string& value) {
    begin();
    tree_.scalar(value, true, line_, column());
    for (++at_; text_[at_] != '"'; ++at_)
      if (text_[at_] == '\\') ++at_;
    ++at_;
    return true;
  }
  bool open(DocNode::Kind kind) {
    begin();
    tree_.open(kind, line_, column());
    ++at_;
    return true;
  }
  bool close() {
    begin();
    ++at_;
    tree_.close();
    return true;
  }

  TreeBuilder& tree_;
  std::string_view text_;
  std::size_t at_ = 0, line_start_ = 0;
  int line_ = 1;
};

}  // namespace

DocPtr parse_json(const std::string& text, const DocSource& source) {
  TreeBuilder tree(source);
  Handler handler(tree, text);
  nlohmann::json::sax_parse(text, &handler);
  return tree.root();
}

}  // namespace tidemark
