#include "tidemark/input/recording.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "tidemark/base/errors.hpp"
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
    read_recording(file.path(), [](const RecordedEvent&) {});
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
       "recording_test.tmp:1: error: expected a timeline CSV, an event CSV (t_us,addr,bytes,...), a raw memory "
       "timeline "
       "or Chrome trace (JSON), or a memory snapshot (pickle)"},
      {"an empty file", "",
       "recording_test.tmp:1: error: expected a timeline CSV, an event CSV (t_us,addr,bytes,...), a raw memory "
       "timeline "
       "or Chrome trace (JSON), or a memory snapshot (pickle)"},
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
  const ReplayTable table = replay({file.path(), {"expandable_segments:True"}, true, std::nullopt});
  CHECK(table.events == 4);
  CHECK(table.before == Bytes{100});
  CHECK(table.peak == Bytes{140});
  CHECK(table.floor == Bytes{100});
  CHECK(table.recorded_reserved == Bytes{512});
  CHECK(table.tides == std::vector<Tide>{{Bytes{100}, Bytes{140}, {}}, {Bytes{100}, Bytes{140}, {}}});
  CHECK(table.rows.size() == 9);
  CHECK(table.rows.front() == ReplayRow{"default", Bytes{1024}, Bytes{2 << 20}, 0, {}});
  CHECK(replay_json(table).find("\"peak_bytes\": 140") != std::string::npos);
  CHECK(replay_text(table).find("2 tides") != std::string::npos);
  const ReplayTable full = replay({file.path(), {}, false, Bytes{1 << 20}});
  CHECK(full.rows.front().out_of_memory_row == 0);
}
