#include "tidemark/input/timeline_file.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "support/tide.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/report/csv.hpp"

using namespace tidemark;
using tidemark::test::HandStep;
using tidemark::test::small_tide;

namespace {

/// A file of that text, gone at the end.
struct TempFile {
  std::string path;
  explicit TempFile(const std::string& text) {
    path = (std::filesystem::temp_directory_path() / "tidemark.XXXXXX").string();
    const int descriptor = ::mkstemp(path.data());
    REQUIRE(descriptor >= 0);
    ::close(descriptor);
    std::ofstream(path, std::ios::binary) << text;
  }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  ~TempFile() { std::filesystem::remove(path); }
};

std::string timeline_csv(const Step& step, const Timeline& timeline) {
  std::string text;
  write_timeline_csv(step, timeline, [&](std::string_view piece) { text += piece; });
  return text;
}

/// The error of reading the text, with "F" for the file's name; "" when it reads.
std::string error_of(const std::string& text) {
  const TempFile file(text);
  try {
    read_timeline(file.path);
  } catch (const InputError& error) {
    std::string message = error.what();
    return "F" + message.substr(file.path.size());
  }
  return "";
}

const std::string header = "seq,time_ns,step,rank,stream,event,op,phase,tensor,category,bytes,live_bytes,id\n";
const std::string first = "0,0,0,0,compute,alloc,,initial,w,parameter,5,5,0\n";

}  // namespace

TEST_CASE("timeline file: what the export writes reads back, row for row") {
  HandStep made = small_tide();
  made.op("say \"a\", b\nc", 1).at_step(1).alloc("t,u", 3).run().free("t,u");
  made.op("copy", 1, Stream::copy_out).phase(Phase::offload).copy();
  Timeline timeline = simulate(made.step, {});
  timeline.allocator.allocated = {{512}};
  timeline.allocator.reserved = {{1024}};
  const TempFile file(timeline_csv(made.step, timeline));
  const std::vector<TimelineRow> rows = read_timeline(file.path);
  REQUIRE(rows.size() == timeline.events.size());
  CHECK(rows[0].allocated == Bytes{512});
  CHECK(rows[0].reserved == Bytes{1024});
  CHECK(rows[1].allocated == std::nullopt);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CAPTURE(i);
    const MemoryEvent& event = timeline.events[i];
    const StepStorage& storage = made.step.storages[event.storage];
    CHECK(rows[i].time == event.time);
    CHECK(rows[i].is_alloc == event.is_alloc());
    CHECK(rows[i].tensor == made.step.names[storage.name]);
    CHECK(rows[i].bytes == storage.bytes);
    CHECK(rows[i].live == event.live);
    CHECK(rows[i].category == storage.category);
    CHECK(rows[i].id == event.storage);
    if (event.op() == no_id) continue;
    const StepOp& op = made.step.ops[event.op()];
    CHECK(rows[i].op == made.step.names[op.name]);
    CHECK(rows[i].phase == op.phase);
    CHECK(rows[i].step == op.step);
    CHECK(rows[i].stream == op.stream);
  }
}

TEST_CASE("timeline file: columns in any order, and lines that end in CR LF") {
  const TempFile file(
      "id,live_bytes,bytes,category,tensor,phase,op,event,stream,rank,step,time_ns,seq\r\n"
      "7,9,9,activation,\"t\",forward,A,alloc,comm,2,1,30,0\r\n");
  const std::vector<TimelineRow> rows = read_timeline(file.path);
  REQUIRE(rows.size() == 1);
  CHECK(rows[0] == TimelineRow{.time = {30},
                               .step = 1,
                               .rank = 2,
                               .stream = Stream::comm,
                               .is_alloc = true,
                               .op = "A",
                               .phase = Phase::forward,
                               .tensor = "t",
                               .category = Category::activation,
                               .bytes = {9},
                               .live = {9},
                               .id = 7});
}

TEST_CASE("timeline file: each fault with its line") {
  struct Case {
    std::string name, text, error;
  };
  const std::string most = "9223372036854775807";
  const Case cases[] = {
      {"whole", header + first, ""},
      {"no rows is a timeline of nothing", header, ""},
      {"empty", "", "F: error: the file is empty; expected a timeline (CSV)"},
      {"a missing column", "seq,time_ns\n", "F:1: error: column 'step' is missing"},
      {"a misspelt column", "seq,time_n\n", "F:1: error: unknown column 'time_n'; did you mean 'time_ns'?"},
      {"a column twice", "seq,seq\n", "F:1: error: column 'seq' stands twice"},
      {"cut mid-line", header + first + "1,0,0",
       "F:3: error: the file ends in the middle of a line: it has been cut off"},
      {"cut before the last line's end", header + first.substr(0, first.size() - 1),
       "F:2: error: the file ends in the middle of a line: it has been cut off"},
      {"cut within quotes", header + "0,0,0,0,compute,alloc,\"a",
       "F:2: error: the file ends within quotes: it has been cut off"},
      {"text after a quote", header + "0,0,0,0,compute,alloc,\"a\"b,forward\n",
       "F:2: error: text after the closing quote of 'a'"},
      {"a blank line", header + first + "\n" + first,
       "F:3: error: a blank line; expected a row or the end of the file"},
      {"too few cells", header + "0,0\n", "F:2: error: 2 cells; expected 13, as in the header"},
      {"too many cells", header + first.substr(0, first.size() - 1) + ",1\n",
       "F:2: error: 14 cells; expected 13, as in the header"},
      {"seq goes back", header + first + first, "F:3: error: 'seq' must count up from 0: expected 1, not 0"},
      {"seq leaves a gap", header + "1,0,0,0,compute,alloc,,initial,w,parameter,5,5,0\n",
       "F:2: error: 'seq' must count up from 0: expected 0, not 1"},
      {"lines within quotes count", header + "0,0,0,0,compute,alloc,,initial,\"a\nb\",parameter,5,5,0\n" + first,
       "F:4: error: 'seq' must count up from 0: expected 1, not 0"},
      {"a number with a tail", header + "0,5x,0,0,compute,alloc,,initial,w,parameter,5,5,0\n",
       "F:2: error: 'time_ns' must be a whole number from 0 to " + most + ", not '5x'"},
      {"a fraction", header + "0,1.5,0,0,compute,alloc,,initial,w,parameter,5,5,0\n",
       "F:2: error: 'time_ns' must be a whole number from 0 to " + most + ", not '1.5'"},
      {"a leading zero", header + "0,010,0,0,compute,alloc,,initial,w,parameter,5,5,0\n",
       "F:2: error: 'time_ns' must be a whole number from 0 to " + most + ", not '010'"},
      {"past 2^63", header + "0,9223372036854775808,0,0,compute,alloc,,initial,w,parameter,5,5,0\n",
       "F:2: error: 'time_ns' must be a whole number from 0 to " + most + ", not '9223372036854775808'"},
      {"negative", header + "0,0,-1,0,compute,alloc,,initial,w,parameter,5,5,0\n",
       "F:2: error: 'step' must be a whole number from 0 to 32767, not '-1'"},
      {"zero bytes make no event", header + "0,0,0,0,compute,alloc,,initial,w,parameter,0,0,0\n",
       "F:2: error: 'bytes' must be a whole number from 1 to " + most + ", not '0'"},
      {"empty where a number must be", header + "0,0,0,0,compute,alloc,,initial,w,parameter,,5,0\n",
       "F:2: error: 'bytes' must be a whole number from 1 to " + most + ", not ''"},
      {"a misspelt word", header + "0,0,0,0,compute,alloc,,forwrad,w,parameter,5,5,0\n",
       "F:2: error: unknown phase 'forwrad'; did you mean 'forward'?"},
      {"another event", header + "0,0,0,0,compute,zzzzzzzzz,,initial,w,parameter,5,5,0\n",
       "F:2: error: unknown event 'zzzzzzzzz'; expected one of: free, alloc"},
      {"control characters are not repeated", header + "0,0,0,0,com\x1b[31m,alloc,,initial,w,parameter,5,5,0\n",
       "F:2: error: unknown stream 'com?[31m'; expected one of: compute, copy_in, copy_out, comm"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(error_of(c.text) == c.error);
  }
}

TEST_CASE("timeline file: no such file, and a directory") {
  CHECK_THROWS_WITH_AS(TimelineReader("/nowhere/t.csv"),
                       "/nowhere/t.csv: error: No such file or directory; expected a timeline (CSV)", InputError);
  CHECK_THROWS_WITH_AS(TimelineReader("/"), "/: error: this is a directory; expected a timeline (CSV)", InputError);
}
