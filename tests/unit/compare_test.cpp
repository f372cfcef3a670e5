#include "tidemark/study/compare.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "support/hand_step.hpp"
#include "tidemark/engine/simulate.hpp"

using namespace tidemark;

namespace {

/// Rows of a list, as a reader of a file hands them out; row i stands in line i + 2.
class ListReader {
 public:
  explicit ListReader(std::vector<TimelineRow> rows) : rows_(std::move(rows)) {}
  std::optional<TimelineRow> next() { return at_ < rows_.size() ? std::optional(rows_[at_++]) : std::nullopt; }
  SourceLoc where() const { return {"list.csv", static_cast<int>(at_) + 1}; }

 private:
  std::vector<TimelineRow> rows_;
  std::size_t at_ = 0;
};

Side side(const std::string& name, std::vector<TimelineRow> rows) {
  return measured_side(name, std::make_shared<ListReader>(std::move(rows)));
}

TimelineRow row(std::int64_t time, bool is_alloc, const std::string& op, Phase phase, const std::string& tensor,
                Category category, std::int64_t bytes, std::int64_t live, std::uint64_t id) {
  TimelineRow out;
  out.time = Nanos{time};
  out.is_alloc = is_alloc;
  out.op = op;
  out.phase = phase;
  out.tensor = tensor;
  out.category = category;
  out.bytes = Bytes{bytes};
  out.live = Bytes{live};
  out.id = id;
  return out;
}

/// w lives from the start; A makes a in 10 ns; B makes b in 30 ns and frees a; C, which makes nothing, frees b.
///
///   w 100        100
///   A  +a 40     140     0 .. 10
///   B  +b 50     190    10 .. 40
///      -a        150
///   C  -b        100    40 .. 45
std::vector<TimelineRow> rows() {
  return {row(0, true, "", Phase::initial, "w", Category::parameter, 100, 100, 0),
          row(0, true, "A", Phase::forward, "a", Category::activation, 40, 140, 1),
          row(10, true, "B", Phase::backward, "b", Category::temporary, 50, 190, 2),
          row(40, false, "B", Phase::backward, "a", Category::activation, 40, 150, 1),
          row(45, false, "C", Phase::optimizer, "b", Category::temporary, 50, 100, 2)};
}

}  // namespace

TEST_CASE("compare: figures of a side, and equal rows whatever their times and ids") {
  std::vector<TimelineRow> later = rows();
  for (TimelineRow& row : later) {
    row.time = 3 * row.time;
    row.id += 7;
    row.reserved = Bytes{1024};
  }
  const Comparison comparison = compare(side("one", rows()), side("two", later));
  CHECK(!comparison.difference);
  const SideFigures& a = comparison.a;
  CHECK(a.name == "one");
  CHECK(a.is_measured);
  CHECK(a.events == 5);
  CHECK(a.peak == Moment{Bytes{190}, 0, Nanos{10}, "B", "", Phase::backward});
  CHECK(a.at_peak == ByCategory{Bytes{100}, {}, {}, {}, Bytes{40}, Bytes{50}, {}, {}});
  CHECK(a.phase_peaks == ByPhase{Bytes{100}, Bytes{140}, std::nullopt, std::nullopt, Bytes{190}, Bytes{100},
                                 std::nullopt, std::nullopt});
  const auto time = [](const SideFigures& of, Phase phase) { return of.time[static_cast<std::size_t>(phase)].count; };
  CHECK(time(a, Phase::initial) == 0);
  CHECK(time(a, Phase::forward) == 10);
  CHECK(time(a, Phase::backward) == 30);
  CHECK(time(a, Phase::optimizer) == 5);
  CHECK(a.end.count == 45);
  CHECK(time(comparison.b, Phase::backward) == 90);
  CHECK(comparison.b.peak.bytes.count == 190);
}

TEST_CASE("compare: the first difference says what it is, and where each side has the other's row") {
  struct Case {
    std::string name;
    void (*change)(std::vector<TimelineRow>&);
    std::string what;
    std::size_t equal;
    int line;  // of B
    std::optional<std::size_t> a_later, b_later;
  };
  const Case cases[] = {
      {"another op", [](auto& r) { r[2].op = "X"; }, "another op", 2, 4, {}, {}},
      {"another phase", [](auto& r) { r[2].phase = Phase::recompute; }, "another phase", 2, 4, {}, {}},
      {"another step", [](auto& r) { r[4].step = 1; }, "another step", 4, 6, {}, {}},
      {"another rank", [](auto& r) { r = {r[0]}, r[0].rank = 1; }, "another rank", 0, 2, {}, {}},
      {"another stream", [](auto& r) { r[1].stream = Stream::comm; }, "another stream", 1, 3, {}, {}},
      {"another tensor", [](auto& r) { r[2].tensor = r[4].tensor = "c"; }, "another tensor", 2, 4, {}, {}},
      {"another category", [](auto& r) { r[1].category = Category::temporary; }, "another category", 1, 3, {}, {}},
      {"another size",
       [](auto& r) {
         r[2].bytes = r[4].bytes = Bytes{60};
         r[2].live = Bytes{200};
         r[3].live = Bytes{160};
       },
       "another size",
       2,
       4,
       {},
       {}},
      {"a free too early",
       [](auto& r) {
         std::swap(r[2], r[3]);
         r[2].time = r[3].time;
         r[3].time = r[4].time;
         r[2].live = Bytes{100};
         r[3].live = Bytes{150};
       },
       "A allocates, B frees", 2, 4, 1, 1},
      {"one more event",
       [](auto& r) {
         TimelineRow extra = r[2];
         extra.tensor = "extra", extra.id = 9, extra.live = Bytes{190};
         r.insert(r.begin() + 2, extra);
         r[3].live = Bytes{240};
         r[4].live = Bytes{200};
         r[5].live = Bytes{150};
       },
       "another tensor",
       2,
       4,
       1,
       {}},
      {"B ends", [](auto& r) { r.pop_back(); }, "B has ended", 4, 5, {}, {}},
      {"A ends",
       [](auto& r) { r.push_back(row(50, false, "D", Phase::optimizer, "w", Category::parameter, 100, 0, 0)); },
       "A has ended",
       5,
       7,
       {},
       {}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    std::vector<TimelineRow> changed = rows();
    c.change(changed);
    const Comparison comparison = compare(side("a", rows()), side("b", changed));
    REQUIRE(comparison.difference);
    CHECK(comparison.difference->what == c.what);
    CHECK(comparison.difference->equal_events == c.equal);
    CHECK(comparison.difference->where_b.line == c.line);
    CHECK(comparison.difference->a_later == c.a_later);
    CHECK(comparison.difference->b_later == c.b_later);
    CHECK(comparison.a.events == 5);  // both sides are read to their ends
    CHECK(comparison.b.events == changed.size());
  }
}

TEST_CASE("compare: rows that cannot have happened are refused with their line") {
  std::vector<TimelineRow> rows_of_b = rows();
  rows_of_b[3].id = 5;
  CHECK_THROWS_WITH_AS(compare(side("a", rows()), side("b", rows_of_b)),
                       "list.csv:5: error: free_of_nothing: 'a' is freed, but nothing was allocated under id 5",
                       InputError);
}

TEST_CASE("compare: a run hands out the rows of its timeline") {
  Run run;
  run.step = test::HandStep()
                 .initial("w", 100)
                 .op("A", 10)
                 .alloc("a", 40)
                 .run()
                 .op("B", 30)
                 .alloc("b", 50)
                 .run({"a"})
                 .free("a")
                 .step;
  run.timeline = simulate(run.step, {});
  const Comparison comparison = compare(simulated_side("a", run), simulated_side("b", run));
  CHECK(!comparison.difference);
  CHECK(!comparison.a.is_measured);
  CHECK(comparison.a.events == 4);
  CHECK(comparison.a.peak.bytes == run.timeline.peak);
  CHECK(comparison.a.end.count == 40);
}

namespace {

Run run_of(const std::string& policy, const std::string& more = "") {
  const std::string model =
      "model: {family: transformer, model_type: gpt2, layers: 4, hidden: 8, heads: 2, ffn_hidden: 32, vocab: 11, "
      "max_positions: 6, attention: eager}\nprofile: reference\nbatch: {size: 2, sequence: 6}\n";
  return run(parse_scenario(model + more + "policy: " + policy + "\n", "case"));
}

Bytes sum(const std::vector<PeakGroup>& groups) {
  Bytes total;
  for (const PeakGroup& group : groups) total += group.bytes;
  return total;
}

std::string kinds(const std::vector<PeakGroup>& groups) {
  std::string out;
  for (const PeakGroup& group : groups) out += (out.empty() ? "" : "; ") + group.what;
  return out;
}

}  // namespace

TEST_CASE("explain: the groups add up to the peak, and the sentence says why it is not lower") {
  struct Case {
    std::string name;
    Run a, b;
    bool of_b;
    std::string says;  // in the sentence
    std::string kind;  // among the groups
  };
  const Case cases[] = {
      {"a segment at a time", run_of("none"), run_of("full"), true, "below A's", "rebuilt by recomputation"},
      {"the other way round", run_of("full"), run_of("none"), false, "A's peak is", "rebuilt by recomputation"},
      {"the whole model at once", run_of("none"), run_of("whole"), true,
       "as high as A's, in backward of layers.3.mlp.down_proj, where A's is too", "rebuilt by recomputation"},
      {"the whole model at once, in words", run_of("none"), run_of("whole"), true,
       "All 4 recomputed layers are rebuilt at once.", "kept to recompute from"},
      {"one block of four", run_of("{kind: block, layers: 1}"), run_of("{kind: block, layers: 1}"), true,
       "What is recomputed is not there, only what it is recomputed from.", "kept to recompute from"},
      {"nothing recomputes", run_of("none"), run_of("none"), true, "as high as A's",
       "saved by blocks and not recomputed"},
      {"an optimizer", run_of("none", "optimizer: adamw\n"), run_of("full", "optimizer: adamw\n"), true,
       "No recomputation of blocks could touch", "optimizer state"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const PeakExplanation why = explain(c.a, c.b);
    CAPTURE(why.sentence);
    CAPTURE(kinds(why.groups));
    CHECK(why.of_b == c.of_b);
    CHECK(sum(why.groups) == (c.of_b ? c.b : c.a).timeline.peak);
    CHECK(why.sentence.find(c.says) != std::string::npos);
    CHECK(kinds(why.groups).find(c.kind) != std::string::npos);
  }
}

namespace {

/// A raw memory timeline for the time of one test.
class RawTimeline {
 public:
  explicit RawTimeline(const std::string& text) { std::ofstream(path) << text; }
  ~RawTimeline() { std::remove(path.c_str()); }
  RawTimeline(const RawTimeline&) = delete;
  RawTimeline& operator=(const RawTimeline&) = delete;
  const std::string path = "compare_test.tmp.json";
};

/// A Chrome trace of a CPU: "8@16" allocates, "-8@16" frees.
std::string cpu_trace(const std::vector<std::pair<int, int>>& events) {
  std::string out = "[{}";
  for (const auto& [bytes, address] : events)
    out += R"(,{"name":"[memory]","ts":1,"args":{"Device Type":0,"Device Id":-1,"Bytes":)" + std::to_string(bytes) +
           R"(,"Addr":)" + std::to_string(address) + "}}";
  return out + "]";
}

}  // namespace

// w lives from the start; A makes a and c; B frees a
TEST_CASE("compare: a recording that knows sizes alone") {
  Run run;
  run.step = test::HandStep()
                 .initial("w", 100)
                 .op("A", 10)
                 .alloc("a", 40)
                 .alloc("c", 40)
                 .run()
                 .op("B", 10)
                 .run({"a"})
                 .free("a")
                 .step;
  run.timeline = simulate(run.step, {});
  struct Case {
    std::string name, text, what;
    std::size_t equal;
    int line;
  };
  const std::string raw = "[[-1,1,100,0],[0,2,40,4],[1,2,40,3],";
  const Case cases[] = {
      {"equal; what is there at the start is not compared", cpu_trace({{40, 64}, {40, 128}, {-40, 64}}), "", 0, 0},
      {"the other block of the size", cpu_trace({{40, 64}, {40, 128}, {-40, 128}}), "another block", 2, 4},
      {"another size", cpu_trace({{40, 64}, {41, 128}, {-40, 64}}), "another size", 1, 3},
      {"an event more", cpu_trace({{40, 64}, {40, 128}, {-40, 64}, {-40, 128}}), "A has ended", 3, 5},
      {"a free for an alloc", cpu_trace({{40, 64}, {-40, 64}}), "A allocates, B frees", 1, 3},
      {"sizes of a GPU are rounded up", cpu_trace({{512, 512}, {512, 1024}, {-512, 512}}), "", 0, 0},
      {"rounded sizes that are not all", cpu_trace({{512, 512}, {40, 1024}, {-512, 512}}), "another size", 0, 2},
      {"without addresses no block is another", raw + "[2,4,-40,3]]", "", 0, 0},
      {"nor a category", raw + "[2,3,-40,4],[2,3,40,7],[2,4,-40,7]]", "", 0, 0},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const RawTimeline file(c.text);
    const Comparison comparison = compare(simulated_side("a", run), recorded_side("b", file.path, ""));
    CHECK(comparison.is_bare);
    CHECK(comparison.b.is_bare);
    CHECK((comparison.difference ? comparison.difference->what : "") == c.what);
    if (!comparison.difference) continue;
    CHECK(comparison.difference->equal_events == c.equal);
    CHECK(comparison.difference->where_b.line == c.line);
  }
}

TEST_CASE("compare: figures of a recording") {
  const RawTimeline file("[[-1,1,100,0],[1000,2,40,4],[3000,2,8,7],[4000,4,-40,4]]");
  const SideFigures b = compare(side("a", rows()), recorded_side("b", file.path, "")).b;
  CHECK(b.events == 4);
  CHECK(b.peak.bytes.count == 148);
  CHECK(b.peak_event == 2);
  CHECK(b.has_categories);
  CHECK(b.at_peak == ByCategory{Bytes{100}, {}, {}, {}, Bytes{40}, {}, {}, {}});
  CHECK(unknown_at_peak(b).count == 8);
  CHECK(b.phase_peaks[0] == Bytes{100});
  CHECK(!b.phase_peaks[1]);
  CHECK(b.end.count == 3000);
}
