#include "unpickle.hpp"

#include <algorithm>
#include <bit>
#include <unordered_map>

#include <fmt/format.h>

#include "tidemark/base/errors.hpp"

namespace tidemark::recordings {
namespace {

using Kind = PickleValue::Kind;

PickleValue of_integer(std::int64_t integer, Kind kind = Kind::integer) {
  PickleValue out;
  out.kind = kind;
  out.integer = integer;
  return out;
}
PickleValue of_real(double real) {
  PickleValue out;
  out.kind = Kind::real;
  out.real = real;
  return out;
}
PickleValue of_index(Kind kind, std::size_t index) {
  PickleValue out;
  out.kind = kind;
  out.index = index;
  return out;
}

/// Opcodes by which a pickle names or calls code, or asks its reader for objects (Lib/pickletools.py).
std::string_view code_opcode(unsigned char opcode) {
  switch (opcode) {
    case 'c':
      return "GLOBAL";
    case 0x93:
      return "STACK_GLOBAL";
    case 'R':
      return "REDUCE";
    case 'b':
      return "BUILD";
    case 'i':
      return "INST";
    case 'o':
      return "OBJ";
    case 0x81:
      return "NEWOBJ";
    case 0x92:
      return "NEWOBJ_EX";
    case 'P':
      return "PERSID";
    case 'Q':
      return "BINPERSID";
    case 0x82:
    case 0x83:
    case 0x84:
      return "EXT";
    default:
      return "";
  }
}

}  // namespace

class Unpickler {
 public:
  Unpickler(std::istream& in, const std::string& path, const PickleLimits& limits, Pickle& out)
      : in_(*in.rdbuf()), path_(path), limits_(limits), out_(out) {}

  void run() {
    if (byte() != 0x80) fail("expected a pickle of protocol 2 to 5");
    const unsigned protocol = byte();
    if (protocol < 2 || protocol > 5) fail(fmt::format("protocol {}; expected 2 to 5", protocol));
    for (;;) {
      const unsigned char opcode = byte();
      if (opcode == '.') break;
      execute(opcode);
    }
    if (stack_.size() != 1 || !marks_.empty()) fail("expected one value at the end");
    out_.root_ = stack_.front();
    if (in_.sgetc() != std::char_traits<char>::eof()) fail("bytes after the end");
  }

 private:
  void execute(unsigned char opcode) {
    switch (opcode) {
      case 0x95:  // FRAME: a hint how far to read ahead
        number(8);
        return;
      case 'N':
        return push({});
      case 0x88:
        return push(of_integer(1, Kind::boolean));
      case 0x89:
        return push(of_integer(0, Kind::boolean));
      case 'K':
        return push(of_integer(static_cast<std::int64_t>(number(1))));
      case 'M':
        return push(of_integer(static_cast<std::int64_t>(number(2))));
      case 'J':
        return push(of_integer(static_cast<std::int32_t>(static_cast<std::uint32_t>(number(4)))));
      case 0x8a:
        return push(of_integer(long_integer(number(1))));
      case 0x8b:
        return push(of_integer(long_integer(number(4))));
      case 'G':
        return push(of_real(real()));
      case 0x8c:
      case 'C':
        return push(text(number(1)));
      case 'X':
      case 'B':
        return push(text(number(4)));
      case 0x8d:
      case 0x8e:
        return push(text(number(8)));
      default:
        return execute_container(opcode);
    }
  }

  void execute_container(unsigned char opcode) {
    switch (opcode) {
      case ']':
      case ')':
        return push(new_list({}));
      case '}':
        out_.dicts_.emplace_back();
        return push(of_index(Kind::dict, out_.dicts_.size() - 1));
      case '(':
        count(1);
        return marks_.push_back(stack_.size());
      case 't':
        return push(new_list(popped_mark()));
      case 0x85:
        return push(new_list(popped(1)));
      case 0x86:
        return push(new_list(popped(2)));
      case 0x87:
        return push(new_list(popped(3)));
      case 'a':
        return append(popped(1));
      case 'e':
        return append(popped_mark());
      case 's':
        return set_items(popped(2));
      case 'u':
        return set_items(popped_mark());
      case 0x94:
        return remember(memo_.size());
      case 'q':
        return remember(number(1));
      case 'r':
        return remember(number(4));
      case 'h':
        return recall(number(1));
      case 'j':
        return recall(number(4));
      default:
        if (const std::string_view name = code_opcode(opcode); !name.empty())
          fail(fmt::format("{} names or runs code, which a snapshot never needs: refused", name));
        fail(fmt::format("opcode {:#04x}; expected only containers, strings and numbers", opcode));
    }
  }

  // --- the stack
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  void count(std::size_t values) {
    values_ += values;
    if (values_ > limits_.values)
      fail(fmt::format("more than {} values; record fewer events (max_entries)", limits_.values));
  }
  void push(PickleValue value) {
    count(1);
    stack_.push_back(value);
  }
  Pickle::List popped(std::size_t values) {
    if (stack_.size() - floor() < values) fail("the stack is too short");
    Pickle::List out(stack_.end() - static_cast<std::ptrdiff_t>(values), stack_.end());
    stack_.resize(stack_.size() - values);
    return out;
  }
  Pickle::List popped_mark() {
    if (marks_.empty()) fail("a mark is missing");
    Pickle::List out = popped(stack_.size() - floor());
    marks_.pop_back();
    return out;
  }
  PickleValue top(Kind kind) {
    if (stack_.size() == floor() || stack_.back().kind != kind) fail("a container is missing");
    return stack_.back();
  }

  // --- containers
  PickleValue new_list(Pickle::List items) {
    out_.lists_.push_back(std::move(items));
    return of_index(Kind::list, out_.lists_.size() - 1);
  }
  void append(const Pickle::List& items) {
    Pickle::List& list = out_.lists_[top(Kind::list).index];
    list.insert(list.end(), items.begin(), items.end());
  }
  void set_items(const Pickle::List& items) {
    if (items.size() % 2 != 0) fail("a key without a value");
    Pickle::Dict& dict = out_.dicts_[top(Kind::dict).index];
    for (std::size_t i = 0; i < items.size(); i += 2) dict.emplace_back(items[i], items[i + 1]);
  }
  void remember(std::uint64_t number) {
    if (stack_.size() == floor()) fail("nothing to remember");
    count(1);
    memo_[number] = stack_.back();
  }
  void recall(std::uint64_t number) {
    const auto found = memo_.find(number);
    if (found == memo_.end()) fail(fmt::format("value {} is recalled and was not remembered", number));
    push(found->second);
  }

  // --- bytes
  unsigned char byte() {
    const int c = in_.sbumpc();
    if (c == std::char_traits<char>::eof()) fail("the pickle is cut off");
    ++at_;
    return static_cast<unsigned char>(c);
  }
  std::uint64_t number(int bytes) {  // little endian
    std::uint64_t out = 0;
    for (int i = 0; i < bytes; ++i) out |= static_cast<std::uint64_t>(byte()) << (8 * i);
    return out;
  }
  /// Two's complement of any length, of which the value must fit.
  std::int64_t long_integer(std::uint64_t length) {
    if (length > 9) fail(fmt::format("a number of {} bytes; expected at most 64 bits", length));
    std::uint64_t out = 0;
    unsigned char last = 0;
    for (std::uint64_t i = 0; i < length; ++i) {
      last = byte();
      if (i < 8) out |= static_cast<std::uint64_t>(last) << (8 * i);
    }
    if (length == 9 && last != 0) fail("a number that does not fit in 64 bits");
    if (length > 0 && length < 8 && (last & 0x80U) != 0) out |= ~std::uint64_t{0} << (8 * length);
    return static_cast<std::int64_t>(out);  // an unsigned address above 2^63 keeps its bits
  }
  double real() {  // big endian
    std::uint64_t bits = 0;
    for (int i = 0; i < 8; ++i) bits = bits << 8 | byte();
    return std::bit_cast<double>(bits);
  }
  PickleValue text(std::uint64_t length) {
    if (length > limits_.text - text_) fail(fmt::format("strings of more than {} bytes", limits_.text));
    text_ += length;
    std::string out;
    constexpr std::uint64_t piece = 1U << 16;  // the length is only a claim
    while (out.size() < length) {
      const auto size = static_cast<std::size_t>(std::min(piece, length - out.size()));
      const std::size_t before = out.size();
      out.resize(before + size);
      if (in_.sgetn(out.data() + before, static_cast<std::streamsize>(size)) != static_cast<std::streamsize>(size))
        fail("the pickle is cut off");
      at_ += size;
    }
    out_.texts_.push_back(std::move(out));
    return of_index(Kind::text, out_.texts_.size() - 1);
  }
  [[noreturn]] void fail(const std::string& message) const {
    throw InputError({path_}, fmt::format("byte {}: {}", at_, message));
  }

  std::streambuf& in_;
  const std::string& path_;
  const PickleLimits& limits_;
  Pickle& out_;
  std::vector<PickleValue> stack_;
  std::vector<std::size_t> marks_;  // sizes of the stack
  std::unordered_map<std::uint64_t, PickleValue> memo_;
  std::size_t values_ = 0, text_ = 0;
  std::uint64_t at_ = 0;
};

Pickle::Pickle(std::istream& in, const std::string& path, const PickleLimits& limits) {
  Unpickler(in, path, limits, *this).run();
}

PickleValue Pickle::member(PickleValue dict, std::string_view name) const {
  if (dict.kind != Kind::dict) return {};
  // as Python has it, the last of a name counts
  const Dict& members = dicts_[dict.index];
  for (auto it = members.rbegin(); it != members.rend(); ++it)
    if (it->first.kind == Kind::text && texts_[it->first.index] == name) return it->second;
  return {};
}

}  // namespace tidemark::recordings
