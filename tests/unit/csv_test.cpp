#include "tidemark/report/csv.hpp"

#include <doctest/doctest.h>

#include "support/tide.hpp"
#include "tidemark/engine/simulate.hpp"

using namespace tidemark;
using tidemark::test::HandStep;

namespace {

using Writer = void (*)(const Step&, const Timeline&, const TextSink&);

std::string written(Writer write, const Step& step, const Timeline& timeline) {
  std::string out;
  write(step, timeline, [&](std::string_view text) { out += text; });
  return out;
}

/// An initial storage, a forward op of step 0 and a copy of step 1, with names that need quotes.
HandStep quoted() {
  HandStep made;
  made.initial("w", 100).is(Category::parameter);
  made.op("say \"a\", b", 10).op_layer("l,0").flops(8, 1).alloc("t\n2", 7).layer("l,0").run();
  made.op("copy", 5, Stream::copy_out).at_step(1).phase(Phase::offload).copy().free("t\n2");
  made.step.ops[0].moved = Bytes{3};
  return made;
}

}  // namespace

TEST_CASE("csv: the timeline, a row an event") {
  const HandStep made = quoted();
  CHECK(
      written(write_timeline_csv, made.step, simulate(made.step, {})) ==
      "seq,time_ns,step,rank,stream,event,op,phase,tensor,category,bytes,live_bytes,allocated_bytes,reserved_bytes,id\n"
      "0,0,0,0,compute,alloc,,initial,w,parameter,100,100,,,0\n"
      "1,0,0,0,compute,alloc,\"say \"\"a\"\", b\",forward,\"t\n2\",activation,7,107,,,1\n"
      "2,15,1,0,copy_out,free,copy,offload,\"t\n2\",activation,7,100,,,1\n");
}

TEST_CASE("csv: the ops, a row each") {
  const HandStep made = quoted();
  CHECK(written(write_ops_csv, made.step, simulate(made.step, {})) ==
        "seq,start_ns,end_ns,step,rank,stream,op,layer,phase,flops,bytes_moved,peak_bytes,end_bytes\n"
        "0,0,10,0,0,compute,\"say \"\"a\"\", b\",\"l,0\",forward,8,3,107,107\n"
        "1,10,15,1,0,copy_out,copy,,offload,0,0,107,100\n");
}

TEST_CASE("csv: an allocator's columns are filled as far as they go") {
  HandStep made;
  made.op("A", 1).alloc("t", 7).run().free("t");
  Timeline timeline = simulate(made.step, {});
  timeline.allocator.allocated = {{512}};
  timeline.allocator.reserved = {{2097152}};
  timeline.allocator.active = {{1024}};
  timeline.allocator.inactive_split = {{2096128}};
  const std::string text = written(write_timeline_csv, made.step, timeline);
  CHECK(text.find(",id,active_bytes,inactive_split_bytes\n") != std::string::npos);
  CHECK(text.find("7,7,512,2097152,0,1024,2096128\n") != std::string::npos);
  CHECK(text.find("7,0,,,0,,\n") != std::string::npos);
}

TEST_CASE("csv: long exports come in pieces, in order and whole") {
  HandStep made;
  for (int i = 0; i < 5000; ++i) made.op("op", 1).alloc("t", 7).run().free("t");
  std::size_t pieces = 0, lines = 0;
  write_timeline_csv(made.step, simulate(made.step, {}), [&](std::string_view text) {
    ++pieces;
    lines += static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
    CHECK(text.ends_with("\n"));
  });
  CHECK(pieces > 3);
  CHECK(lines == 10001);
}

TEST_CASE("csv: fields") {
  struct Case {
    std::string name, text, field;
  };
  const Case cases[] = {{"plain", "a b", "a b"},      {"empty", "", ""},
                        {"comma", "a,b", "\"a,b\""},  {"quote", "a\"b", "\"a\"\"b\""},
                        {"line", "a\nb", "\"a\nb\""}, {"return", "a\rb", "\"a\rb\""}};
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(csv_field(c.text) == c.field);
  }
}
