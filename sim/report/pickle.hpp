/// How is a Python value written that every unpickler reads, PyTorch's viewer in JavaScript included?
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text_buffer.hpp"

namespace tidemark {

/// Protocol 2 (Lib/pickletools.py documents the opcodes). Values are written in order; in a list each is followed by
/// `end_item`, in a dict each stands after its `key`. Equal strings are written once and referred to after that.
class PickleWriter {
 public:
  explicit PickleWriter(const TextSink& sink);

  void begin_dict() { out_.text("}("); }
  void end_dict() { out_.text("u"); }
  void begin_list();
  /// After a list's value: every thousand, the items so far are appended, since readers take a batch at once.
  void end_item();
  void end_list();
  void key(std::string_view name) { string(name); }
  void member(std::string_view name, std::string_view value) {
    key(name);
    string(value);
  }
  void member(std::string_view name, std::int64_t value) {
    key(name);
    integer(value);
  }
  void boolean(bool value) { out_.text(value ? "\x88" : "\x89"); }
  void pair(std::int64_t first, std::int64_t second);
  /// Keeps the value written last for `recall`, under the number returned.
  std::uint32_t remember();
  void recall(std::uint32_t number) { reference('j', number); }
  void stop();

 private:
  void string(std::string_view text);  // bytes that are not UTF-8 become U+FFFD
  void integer(std::int64_t value);
  void reference(char opcode, std::uint32_t number);

  TextBuffer out_;
  std::vector<int> items_;  // in each open list, since its last batch
  std::unordered_map<std::string, std::uint32_t> strings_;
  std::uint32_t remembered_ = 0;
};

}  // namespace tidemark
