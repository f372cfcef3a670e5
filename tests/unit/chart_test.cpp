#include "tidemark/report/chart.hpp"

#include <doctest/doctest.h>

#include <sstream>

#include "support/tide.hpp"
#include "tidemark/engine/simulate.hpp"

using namespace tidemark;
using tidemark::test::HandStep;
using tidemark::test::small_tide;

namespace {

std::string chart_of(const HandStep& made, const ChartOptions& options, const TerminalStyle& style) {
  return "\n" + tide_chart(made.step, simulate(made.step, {}), options, style);
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

}  // namespace

TEST_CASE("chart: levels by event, the peak marked, phases and recomputes under the axis") {
  CHECK(chart_of(small_tide(), {.rows = 6, .limit = {}}, {.width = 60}) == R"(
                280 B, backward of layers.0.a ▼
   256 B ┤                                   ███▂▂▂
         │                                   ██████▇▇▇▄▄▄
   192 B ┤     ▃▃▃   ▃▃▃▄▄▄▄▄▄▇▇▇▂▂▂▁▁▁▁▁▁▆▆▆████████████
   128 B ┤▂▂██████▆▆▆████████████████████████████████████▂▂▂
    64 B ┤██████████████████████████████████████████████████
         │██████████████████████████████████████████████████
       0 └─────────────────┴──┴──────────────────────────┴──
          forward             backward
recompute                                 ▀▀▀
)");
}

TEST_CASE("chart: by time, each level as long as it lasts") {
  CHECK(chart_of(small_tide(), {.axis = ChartOptions::Axis::time, .rows = 6, .limit = {}}, {.width = 60}) == R"(
               280 B, backward of layers.0.a ▼
   256 B ┤                                   █████████████▂
         │                                   ██████████████
   192 B ┤▃▃▃▃▃▃▄▄▄▄▄▄▄▄▄▄▇▇▇▇▇▇▇▇▇▇▇▇▆▆▆▆▆▆▆██████████████
   128 B ┤█████████████████████████████████████████████████▂
    64 B ┤██████████████████████████████████████████████████
         │██████████████████████████████████████████████████
       0 └────────────┴───┴────────────────────────────────┴
          forward     los backward
recompute                             ▀▀▀▀▀▀▀
)");
}

TEST_CASE("chart: plain ASCII with the limit in reach") {
  CHECK(chart_of(small_tide(), {.rows = 6, .limit = Bytes{300}}, {.width = 40, .ascii = true}) == R"(
          280 B, ba..ayers.0.a v
   limit +---------------------:--------
   256 B +                     ###::..
   192 B +   ..  .....::     ::#######
   128 B +.####::#####################..
    64 B +##############################
         |##############################
       0 +----------+-+---------------+-
          forward     backward
recompute                    ^^
)");
}

TEST_CASE("chart: a limit far above the peak is left out") {
  const ChartOptions without{.limit = {}}, far{.limit = Bytes{1000}};
  CHECK(chart_of(small_tide(), far, {}) == chart_of(small_tide(), without, {}));
}

TEST_CASE("chart: the time axis falls back to events where no time passes") {
  HandStep made;
  made.op("A", 0).alloc("t", 5).run().free("t");
  const ChartOptions by_time{.axis = ChartOptions::Axis::time, .limit = {}}, by_event{.limit = {}};
  CHECK(chart_of(made, by_time, {}) == chart_of(made, by_event, {}));
}

TEST_CASE("chart: a single high event among thousands is not hidden") {
  HandStep made;
  for (int i = 0; i < 3000; ++i) made.op("low", 1).alloc("t", 10).run().free("t");
  made.op("high", 0).alloc("t", 1000).run().free("t");
  for (int i = 0; i < 3000; ++i) made.op("low", 1).alloc("t", 10).run().free("t");
  struct Case {
    ChartOptions::Axis axis;
    std::size_t column;  // of 70: just below the middle of the events, at the middle of the time
  };
  const Case cases[] = {{ChartOptions::Axis::sequence, 34}, {ChartOptions::Axis::time, 35}};
  for (const Case& c : cases) {
    CAPTURE(c.column);
    const std::vector<std::string> chart =
        lines(tide_chart(made.step, simulate(made.step, {}), {.axis = c.axis, .rows = 4, .limit = {}}, {.width = 80}));
    CHECK(chart.at(0) == std::string(10 + c.column, ' ') + "▼ 1000 B, forward of high");
    // The top row is empty but for the peak's column.
    CHECK(chart.at(1) == "         │" + std::string(c.column, ' ') + "█");
  }
}

TEST_CASE("chart: what is small is not drawn as nothing") {
  HandStep made;
  made.op("A", 1).alloc("small", 1).run();
  made.op("B", 1).alloc("large", 100000).run().free("large");
  const std::vector<std::string> chart = lines(chart_of(made, {.rows = 2, .limit = {}}, {.width = 50}));
  CHECK(chart.at(3) == "  32 KiB ┤          ▁▁▁▁▁▁▁▁▁▁██████████▁▁▁▁▁▁▁▁▁▁");
}

TEST_CASE("chart: the step with the peak is drawn, from the level it starts at") {
  HandStep made;
  made.initial("w", 50);
  made.op("A", 1).alloc("t", 10).run().free("t");
  made.op("B", 1).at_step(1).phase(Phase::backward).alloc("t", 50).run().free("t");
  const std::string chart = chart_of(made, {.rows = 2, .limit = {}}, {.width = 40});
  CHECK(chart == R"(
                        ▼ 100 B,…rd of B
    96 B ┤          ██████████
    32 B ┤██████████████████████████████
       0 └──────────────────────────────
          backward
)");
}

TEST_CASE("chart: no line passes the width") {
  for (const int width : {10, 40, 41, 77, 100, 250})
    for (const bool ascii : {false, true}) {
      CAPTURE(width);
      const TerminalStyle style{.width = width, .ascii = ascii};
      for (const std::string& line : lines(chart_of(small_tide(), {.limit = Bytes{290}}, style)))
        CHECK(columns(line) <= static_cast<std::size_t>(std::max(width, 40)));
    }
}

TEST_CASE("chart: color adds escapes and nothing else") {
  const TerminalStyle plain{.width = 60}, color{.width = 60, .color = true};
  const std::string painted = chart_of(small_tide(), {.limit = Bytes{290}}, color);
  std::string stripped;
  bool escape = false;
  for (const char c : painted) {
    escape = escape || c == '\x1b';
    if (!escape) stripped += c;
    if (c == 'm') escape = false;
  }
  CHECK(painted != stripped);
  // Painted margins may end in spaces before their reset.
  std::string trimmed;
  for (std::string line : lines(stripped)) {
    while (line.ends_with(' ')) line.pop_back();
    trimmed += line + "\n";
  }
  CHECK(trimmed == chart_of(small_tide(), {.limit = Bytes{290}}, plain));
}

TEST_CASE("chart: nothing to draw") {
  CHECK(tide_chart(Step{}, Timeline{}, {.limit = {}}, {}) == "");
  HandStep only_start;
  only_start.initial("w", 5);
  CHECK(chart_of(only_start, {.rows = 2, .limit = {}}, {.width = 40}) == R"(
                        ▼ 5 B, a…e start
     4 B ┤██████████████████████████████
     2 B ┤██████████████████████████████
       0 └──────────────────────────────
)");
}
