#include "tidemark/input/recording.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "tidemark/base/errors.hpp"
#include "tidemark/engine/arena.hpp"
#include "tidemark/report/lifetimes_csv.hpp"
#include "tidemark/study/replay.hpp"

using namespace tidemark;

namespace {

/// A file for the time of one test.
class Recording {
 public:
  explicit Recording(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }
  ~Recording() { std::remove(path_.c_str()); }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_ = "recording_test.tmp";
};

std::string error_of(const std::string& text) {
  const Recording file(text);
  try {
    read_recording(file.path(), "", [](const RecordedEvent&) {});
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

const std::string header = "t_us,addr,bytes,total_allocated,total_reserved\n";

}  // namespace

TEST_CASE("recording: a fault names its row") {
  struct Case {
    std::string name, text, error;
  };
  const Case cases[] = {
      {"a good event list", header + "0,a0,16,116,512\n1,a0,-16,100,512\n", ""},
      {"a free of an unknown block", header + "0,a0,16,116,512\n1,b0,-16,100,512\n",
       "recording_test.tmp:3: error: block 176 is freed and was not alive"},
      {"a free of another size", header + "0,a0,16,116,512\n1,a0,-8,108,512\n",
       "recording_test.tmp:3: error: 8 bytes are freed of a block of 16"},
      {"no size", header + "0,a0,0,100,512\n", "recording_test.tmp:2: error: a block of 0 bytes"},
      {"an overlap from below", header + "0,a0,16,116,512\n1,a8,8,124,512\n",
       "recording_test.tmp:3: error: the block overlaps one that is alive"},
      {"an overlap from above", header + "0,a8,8,108,512\n1,a0,16,124,512\n",
       "recording_test.tmp:3: error: the block overlaps one that is alive"},
      {"time goes back", header + "5,a0,16,116,512\n4,b0,16,132,512\n",
       "recording_test.tmp:3: error: time goes back from 5000 to 4000"},
      {"a wrong total", header + "0,a0,16,116,512\n1,a0,-16,101,512\n",
       "recording_test.tmp:3: error: the running total is 101; expected 100"},
      {"no number", header + "0,a0,x,116,512\n", "recording_test.tmp:2: error: 'x' is not a whole number"},
      {"too few cells", header + "0,a0\n",
       "recording_test.tmp:2: error: expected t_us,addr,bytes,total_allocated,total_reserved"},
      {"another file", "a,b\n",
       "recording_test.tmp:1: error: expected a timeline CSV, an event CSV (t_us,addr,bytes,...), lifetimes "
       "(id,lower,upper,size), a raw memory timeline or Chrome trace (JSON), or a memory snapshot (pickle)"},
      {"an empty file", "",
       "recording_test.tmp:1: error: expected a timeline CSV, an event CSV (t_us,addr,bytes,...), lifetimes "
       "(id,lower,upper,size), a raw memory timeline or Chrome trace (JSON), or a memory snapshot (pickle)"},
      {"good lifetimes", "lower,id,size,upper\n0,a,4,3\n3,b,4,9\n", ""},
      {"lifetimes with addresses", "id,lower,upper,size,offset\na,0,3,4,0\nb,3,9,4,0\nc,0,9,4,4\n", ""},
      {"lifetimes: overlapping addresses", "id,lower,upper,size,offset\na,0,4,4,0\nb,3,9,4,2\n",
       "recording_test.tmp:3: error: the block overlaps one that is alive"},
      {"lifetimes: a negative size", "id,lower,upper,size\na,0,4,-4\n",
       "recording_test.tmp:2: error: a block of -4 bytes"},
      {"lifetimes: no length", "id,lower,upper,size\na,4,4,4\n",
       "recording_test.tmp:2: error: alive from 4 to 4; expected an upper above lower"},
      {"lifetimes: one id twice", "id,lower,upper,size\na,0,4,4\na,4,5,4\n",
       "recording_test.tmp:3: error: id 'a' stands twice"},
      {"lifetimes: a blank line", "id,lower,upper,size\na,0,4,4\n\nb,4,5,4\n",
       "recording_test.tmp:3: error: 1 cells; expected 4"},
      {"lifetimes: no number", "id,lower,upper,size\na,0,4,4x\n",
       "recording_test.tmp:2: error: '4x' is not a whole number"},
      {"lifetimes: another column", "id,lower,upper,size,gaps\n",
       "recording_test.tmp:1: error: unknown column 'gaps'; expected id, lower, upper, size, offset"},
      {"lifetimes: no size", "id,lower,upper\n", "recording_test.tmp:1: error: column 'size' is missing"},
      {"a good raw timeline", "[[-1,1,8,7],[0,2,8,4],[1,3,-8,4],[1,3,8,0],[2,4,-8,0],[3,4,-8,7]]", ""},
      {"raw: a free of nothing", "[[0,2,8,4],[1,4,-8,5]]",
       "recording_test.tmp:2: error: no block of 8 bytes and category 5 is alive"},
      {"raw: an unknown action", "[[0,5,8,4]]", "recording_test.tmp:1: error: unknown action 5"},
      {"raw: a negative size", "[[0,2,-8,4]]", "recording_test.tmp:1: error: -8 bytes"},
      {"raw: half of a change", "[[0,2,8,4],[1,3,8,0]]",
       "recording_test.tmp:2: error: a change without its first half"},
      {"raw: cut off", "[[0,2,8,4],[1,", "recording_test.tmp:2: error: the JSON is cut off after this event"},
      {"raw: cut off between events", "[[0,2,8,4]",
       "recording_test.tmp:1: error: the JSON is cut off after this event"},
      {"raw: two texts", "[[0,2,8,4]][]", "recording_test.tmp:1: error: text after the end"},
      {"raw: nested", "[" + std::string(100, '[') + std::string(100, ']') + "]",
       "recording_test.tmp:1: error: nested too deep"},
      {"raw: another shape", "[[0,2,8]]",
       "recording_test.tmp:1: error: expected events [t_ns, action, bytes, category]"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(error_of(c.text) == c.error);
  }
}

// level, from 100 before the recording: 140 | 100 | 140 | 100: two tides
TEST_CASE("replay: levels, tides, and settings side by side") {
  const Recording file(header + "0,a0,40,140,512\n1,a0,-40,100,512\n2,a0,40,140,512\n3,a0,-40,100,512\n");
  const ReplayTable table =
      replay({.recording = file.path(), .confs = {"expandable_segments:True"}, .all_settings = true});
  CHECK(table.events == 4);
  CHECK(table.before == Bytes{100});
  CHECK(table.peak == Bytes{140});
  CHECK(table.floor == Bytes{100});
  CHECK(table.recorded_reserved == Bytes{512});
  CHECK(table.tides == std::vector<Tide>{{Bytes{100}, Bytes{140}, {}}, {Bytes{100}, Bytes{140}, {}}});
  CHECK(table.rows.size() == 13);
  CHECK(table.rows.front() ==
        ReplayRow{.setting = "default", .allocated_peak = Bytes{1024}, .reserved_peak = Bytes{2 << 20}});
  CHECK(table.rows[10].setting == "garbage_collection_threshold:0.6,memory_fraction:1");
  CHECK(table.warnings.size() == 1);
  CHECK(table.rows.back() == ReplayRow{.setting = "arena (static addresses)",
                                       .allocated_peak = Bytes{140},
                                       .reserved_peak = Bytes{140},
                                       .lower_bound = Bytes{140}});
  CHECK(replay_json(table).find("\"peak_bytes\": 140") != std::string::npos);
  CHECK(replay_text(table).find("2 tides") != std::string::npos);
  const ReplayTable full = replay({.recording = file.path(), .capacity = Bytes{1 << 20}});
  CHECK(full.rows.front().out_of_memory_row == 0);
}

// a and b never meet: 6 units hold them, and c above
TEST_CASE("replay: minimalloc's lifetimes into an arena, and out again") {
  const Recording file("id,lower,upper,size\na,0,3,4\nb,3,9,4\nc,0,9,2\n");
  const ReplayTable table = replay({.recording = file.path(), .arena = true});
  CHECK(table.rows.back().reserved_peak == Bytes{6});
  CHECK(!table.rows.back().above_capacity);
  CHECK(replay({.recording = file.path(), .capacity = Bytes{5}, .arena = true}).rows.back().above_capacity);
  const std::vector<Lifetime> lives = recorded_lifetimes(file.path());
  const Arena arena = make_arena(lives);
  std::string text;
  write_lifetimes_csv(lives, &arena, [&](std::string_view part) { text += part; });
  const Recording again(text);
  CHECK(recorded_lifetimes(again.path()).size() == 3);
  CHECK(replay({.recording = again.path(), .arena = true}).rows.back().reserved_peak == Bytes{6});
}

TEST_CASE("recording: minimalloc's ids pair allocs and frees, with addresses or without") {
  for (const std::string offset : {"", ",0"}) {
    CAPTURE(offset);
    const Recording file("id,lower,upper,size" + std::string(offset.empty() ? "" : ",offset") + "\na,0,3,4" + offset +
                         "\n");
    CHECK(!RecordingReader(file.path()).pairs_by_size());
  }
}
