#include <doctest/doctest.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "tidemark/base/errors.hpp"
#include "tidemark/input/recording.hpp"

using namespace tidemark;

namespace {

const std::string path = "recording_trace_test.tmp";

/// "+8@16 -8@16": what a recording hands out; a ' before a block that is older than it. With its own error as text.
std::string read(const std::string& text, const std::string& device = "") {
  std::ofstream(path, std::ios::binary) << text;
  std::string out;
  try {
    RecordingReader reader(path, device);
    while (const std::optional<RecordedEvent> event = reader.next()) {
      out += out.empty() ? "" : " ";
      out += event->is_earlier ? "'" : "";
      out += event->what == RecordedEvent::What::alloc ? "+" : "-";
      out += std::to_string(event->bytes.count) + "@" + std::to_string(event->block);
      if (event->total) out += "=" + std::to_string(event->total->count);
      if (!event->name.empty()) out += " (" + event->name + ")";
    }
  } catch (const InputError& error) {
    out = std::string(error.what()).substr(path.size());
  }
  std::remove(path.c_str());
  return out;
}

std::string memory(int time, int type, int bytes, const std::string& more) {
  return R"({"ph":"i","name":"[memory]","ts":)" + std::to_string(time) + R"(,"args":{"Device Type":)" +
         std::to_string(type) + R"(,"Device Id":0,"Bytes":)" + std::to_string(bytes) + more + "}}";
}
std::string at(int address, int total = -1) {
  std::string out = R"(,"Addr":)" + std::to_string(address);
  if (total >= 0) out += R"(,"Total Allocated":)" + std::to_string(total);
  return out;
}
std::string trace(const std::string& events) {
  return R"({"schemaVersion": 1, "odd \" ] }": {"a": [1, "]"]}, "traceEvents": [)" + events + R"(], "traceName": "x"})";
}
const std::string other = R"({"ph":"X","name":"aten::mm","args":{"[memory]":1}},)";

}  // namespace

TEST_CASE("trace: its memory events, and what is older than they are") {
  struct Case {
    std::string name, text, device, read;
  };
  const std::string pair = memory(5, 1, 8, at(16)) + "," + memory(6, 1, -8, at(16));
  const Case cases[] = {
      {"an object", trace(other + pair), "", "+8@16 -8@16"},
      {"a bare array", "[" + other + pair + "]", "", "+8@16 -8@16"},
      {"a block that is older", trace(memory(5, 1, -8, at(16)) + "," + memory(6, 1, 4, at(16))), "",
       "'+8@16 -8@16 +4@16"},
      {"the level before, of which 8 are known", trace(memory(5, 1, -8, at(16, 100))), "", "'+8@16=108 -8@16"},
      {"a level that counts from the start", trace(memory(5, 1, 8, at(16, 8))), "", "+8@16=8"},
      {"threads one behind the other", trace(memory(6, 1, -8, at(16)) + "," + memory(5, 1, 8, at(16))), "",
       "+8@16 -8@16"},
      {"without addresses: the oldest of its size",
       trace(memory(1, 1, 8, "") + "," + memory(2, 1, 8, "") + "," + memory(3, 1, -8, "") + "," + memory(4, 1, -4, "")),
       "", "'+4@2 +8@0 +8@1 -8@0 -4@2"},
      {"the GPU goes before the CPU", trace(memory(5, 0, 4, at(16)) + "," + memory(5, 1, 8, at(16))), "", "+8@16"},
      {"the CPU by name", trace(memory(5, 0, 4, at(16)) + "," + memory(5, 1, 8, at(16))), "cpu", "+4@16"},
      {"an unknown device", trace(memory(5, 0, 4, at(16))), "cuda:1",
       ": error: no memory events of 'cuda:1'; expected one of: cpu"},
      {"none", trace(R"({"name":"aten::mm"})"), "",
       ": error: no \"[memory]\" events; record with profile(..., profile_memory=True)"},
      {"no size", trace(R"({"name":"[memory]","ts":1,"args":{"Device Type":1,"Device Id":0}})"), "",
       ":1: error: 'Bytes' of a memory event must be a whole number"},
      {"no time", trace(R"({"name":"[memory]","args":{"Bytes":1}})"), "",
       ":1: error: 'ts' of a memory event must be a time in microseconds"},
      {"a size of 0", trace(memory(5, 1, 0, at(16))), "", ":1: error: 'Bytes' must not be 0"},
      {"addresses of some", trace(pair + "," + memory(7, 1, 8, "")), "",
       ":3: error: some memory events have an 'Addr' and some have none"},
      {"freed twice", trace(pair + "," + memory(7, 1, -8, at(16))), "",
       ":3: error: block 16 is freed and was not alive"},
      {"no events", R"({"traceName": "x"})", "", ": error: no member 'traceEvents'"},
      {"damaged within", trace(R"({"name":"[memory]",,"ts":1})"), "", ":1: error: damaged JSON"},
      {"cut off within", trace(pair).substr(0, 150), "", ":1: error: the JSON is cut off after this event"},
      {"cut off behind", trace(pair).substr(0, trace(pair).size() - 6), "",
       ":2: error: the JSON is cut off after this event"},
      {"an event without end", trace("\"" + std::string(2 << 20, 'x') + "\""), "", ":1: error: longer than 1 MiB"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(read(c.text, c.device) == c.read);
  }
}

namespace {

using namespace std::string_literals;

// A pickle's pieces, protocol 2.
std::string str(const std::string& text) { return "X" + std::string{static_cast<char>(text.size()), 0, 0, 0} + text; }
std::string num(int number) { return "K"s + static_cast<char>(number); }
std::string list(const std::string& items) { return "](" + items + "e"; }
std::string dict(const std::string& items) { return "}(" + items + "u"; }
std::string pickle(const std::string& value, char protocol = 2) { return "\x80"s + protocol + value + "."; }

std::string entry(const std::string& action, int address, int size, const std::string& more = "") {
  return dict(str("action") + str(action) + str("addr") + num(address) + str("size") + num(size) + more);
}
std::string block(int size, const std::string& state) {
  return dict(str("size") + num(size) + str("requested_size") + num(size) + str("state") + str(state));
}
std::string snapshot(const std::string& devices, const std::string& blocks = "") {
  return dict(str("device_traces") + list(devices) + str("segments") +
              list(dict(str("device") + num(0) + str("address") + num(96) + str("blocks") + list(blocks))));
}
const std::string frames =
    str("frames") +
    list(dict(str("filename") + str("a.cpp") + str("line") + num(1) + str("name") + str("f")) +
         dict(str("filename") + str("/m/net.py") + str("line") + num(7) + str("name") + str("forward")));

}  // namespace

TEST_CASE("snapshot: its ring buffer, and what is older") {
  struct Case {
    std::string name, text, read;
  };
  const std::string pair =
      entry("alloc", 16, 8, frames) + entry("free_requested", 16, 8) + entry("free_completed", 16, 8);
  const std::string one = pickle(snapshot(list(pair)));
  const Case cases[] = {
      {"a pair", one, "+8@16 (net.py:7 forward) -8@16"},
      {"protocol 4 has the same opcodes", pickle(snapshot(list(pair)), 4), "+8@16 (net.py:7 forward) -8@16"},
      {"what else happens", pickle(snapshot(list(entry("segment_alloc", 16, 64) + entry("snapshot", 0, 0) + pair))),
       "+8@16 (net.py:7 forward) -8@16"},
      {"alive at the end, older than the buffer",
       pickle(snapshot(list(pair), block(32, "inactive") + block(8, "active_allocated"))),
       "'+8@128 +8@16 (net.py:7 forward) -8@16"},
      {"freed, older", pickle(snapshot(list(entry("free_requested", 16, 8)))), "'+8@16 -8@16"},
      {"freed, its request lost", pickle(snapshot(list(entry("free_completed", 16, 8)))), "'+8@16 -8@16"},
      {"the second device", pickle(snapshot(list("") + list(pair))), "+8@16 (net.py:7 forward) -8@16"},
      {"two devices", pickle(snapshot(list(pair) + list(pair))),
       ": error: events of several devices (cuda:0, cuda:1); name one by --recorded-device"},
      {"nothing recorded", pickle(snapshot(list(""))),
       ": error: no events; call torch.cuda.memory._record_memory_history() before the step"},
      {"another pickle", pickle(list("")),
       ": error: expected a snapshot of torch.cuda.memory: a dict with 'device_traces'"},
      {"no size", pickle(snapshot(list(dict(str("action") + str("alloc"))))),
       ":1: error: 'size' must be a whole number"},
      {"freed twice", pickle(snapshot(list(pair + entry("free_requested", 16, 8)))),
       ":4: error: block 16 is freed and was not alive"},
      {"cut off", one.substr(0, 100), ": error: byte 100: the pickle is cut off"},
      {"more behind the end", one + "x", ": error: byte " + std::to_string(one.size()) + ": bytes after the end"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(read(c.text) == c.read);
  }
}

TEST_CASE("snapshot: a hostile pickle is refused, and nothing in it runs") {
  struct Case {
    std::string name, text, error;
  };
  const std::string code = " names or runs code, which a snapshot never needs: refused";
  const Case cases[] = {
      {"GLOBAL", pickle("cos\nsystem\n(S'x'\ntR"), "byte 3: GLOBAL" + code},
      {"STACK_GLOBAL", pickle(str("os") + str("system") + "\x93", 4), "byte 21: STACK_GLOBAL" + code},
      {"REDUCE",
       pickle("NN"
              "R"),
       "byte 5: REDUCE" + code},
      {"BUILD",
       pickle("NN"
              "b"),
       "byte 5: BUILD" + code},
      {"INST", pickle("(ios\nsystem\n"), "byte 4: INST" + code},
      {"OBJ", pickle("(o"), "byte 4: OBJ" + code},
      {"NEWOBJ", pickle("NN\x81"), "byte 5: NEWOBJ" + code},
      {"NEWOBJ_EX", pickle("NNN\x92"), "byte 6: NEWOBJ_EX" + code},
      {"PERSID", pickle("Px\n"), "byte 3: PERSID" + code},
      {"BINPERSID", pickle("NQ"), "byte 4: BINPERSID" + code},
      {"EXT", pickle("\x82\x01"), "byte 3: EXT" + code},
      {"an opcode of old", pickle("I5\n"), "byte 3: opcode 0x49; expected only containers, strings and numbers"},
      {"protocol 1", "\x80\x01]."s, "byte 2: protocol 1; expected 2 to 5"},
      {"protocol 6", "\x80\x06]."s, "byte 2: protocol 6; expected 2 to 5"},
      {"a string of 4 GiB", pickle("X\xff\xff\xff\xffshort"), "byte 7: strings of more than 1073741824 bytes"},
      {"a string of 1 GiB that is not there", pickle("X\x00\x00\x00\x40short"s), "byte 7: the pickle is cut off"},
      {"a string of 2^64 bytes", pickle("\x8d\xff\xff\xff\xff\xff\xff\xff\xffx"),
       "byte 11: strings of more than 1073741824 bytes"},
      {"a number of 2 GiB", pickle("\x8b\xff\xff\xff\x7f"),
       "byte 7: a number of 2147483647 bytes; expected at most 64 bits"},
      {"a number above 64 bits",
       pickle("\x8a\x09"
              "12345678\x01"),
       "byte 13: a number that does not fit in 64 bits"},
      {"a recall of nothing", pickle("j\xff\xff\xff\xff"),
       "byte 7: value 4294967295 is recalled and was not remembered"},
      {"a mark that is missing", pickle("]e"), "byte 4: a mark is missing"},
      {"a list that is a number", pickle("N(Ne"), "byte 6: a container is missing"},
      {"a key without a value", pickle("}(Nu"), "byte 6: a key without a value"},
      {"an empty stack", pickle(""), "byte 3: expected one value at the end"},
      {"too short a stack", pickle("N\x86"), "byte 4: the stack is too short"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(read(c.text) == ": error: " + c.error);
  }
}

TEST_CASE("snapshot: depth and cycles cost nothing") {
  const std::string deep = pickle(std::string(1'000'000, ']') + std::string(999'999, 'a'));
  const std::string error = ": error: expected a snapshot of torch.cuda.memory: a dict with 'device_traces'";
  CHECK(read(deep) == error);
  CHECK(read(pickle("]q\x00h\x00"s + "a")) == error);
}
