#include "tidemark/report/text.hpp"

#include <doctest/doctest.h>

#include "support/tide.hpp"
#include "tidemark/engine/simulate.hpp"

using namespace tidemark;
using tidemark::test::HandStep;
using tidemark::test::small_tide;

namespace {

/// Everything the page can show.
ScenarioFacts all_facts() {
  ScenarioFacts facts;
  facts.name = "small tide";
  facts.profile = {"ideal", "ideal", "ideal", "reference", "plain"};
  facts.budget = Bytes{279};
  facts.policy = "1 of 2 blocks runs again";
  facts.no_checkpoint_peak = Bytes{280};
  facts.top = 4;
  facts.textbook = Textbook{2, 1, {30}, {10}};
  facts.flops_per_second = 1e9;
  facts.warnings = {"something worth a second look, said at such a length that it has to go over the end of a line"};
  return facts;
}

HandStep small_model() {
  HandStep made = small_tide();
  made.step.model_flops = Flops{54};
  made.step.parameters = 1234567;
  return made;
}

std::string page(const HandStep& made, const ScenarioFacts& facts, const TerminalStyle& style) {
  return "\n" + summary_text(summarize(made.step, simulate(made.step, {}), facts), "(chart)\n", style);
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("text: a page with everything on it") {
  CHECK(page(small_model(), all_facts(), {.width = 80}) == R"(
small tide
profile ideal: runtime ideal, kernels ideal, code reference, loop plain
1,234,567 parameters · 1 step · 7 ops · 18 allocations and frees

Peak        280 B  backward of layers.0.a, at 55 ns
Fits        no, 1 B above the 279 B of the budget (live bytes)
Policy      1 of 2 blocks runs again
            as high as without checkpointing, 280 B

(chart)

At the peak, by category                             Highest level by phase
  parameter            100 B   35.7 %  ███▋            start              110 B
  gradient             100 B   35.7 %  ███▋            forward            165 B
  input                 10 B    3.6 %  ▍               loss               166 B
  activation            50 B   17.9 %  █▊              recompute          180 B
  temporary             20 B    7.1 %  ▊               backward           280 B
                                                       optimizer          210 B

The 4 largest of 6 tensors at the peak
      bytes       drop  tensor  held by
      100 B      100 B  w       parameter
      100 B       94 B  gw      gradient until the optimizer
       30 B       30 B  mid     read by the running op
       20 B       20 B  h       held until backward of layers.0.a

Cost
              matrix FLOPs   other FLOPs          time
  forward          18 FLOP        5 FLOP         25 ns
  recompute         7 FLOP        2 FLOP         10 ns
  backward         36 FLOP                       40 ns
  optimizer                                       3 ns
  total            61 FLOP        7 FLOP         78 ns
  recomputing adds 13.0 % FLOPs and 14.7 % time · MFU 69.2 % · HFU 78.2 %
  (the textbook's 33.3 % takes backward as 2 forwards and recomputes all of
  forward: here 2.00 forwards, and 38.9 % recomputed)

The textbook formula
  ceil(2/1) × 10 B + 1 × 30 B = 50 B
  The simulated peak is 230 B higher:
       -10 B  1 of 2 boundaries: those of segments that are done have gone
              (boundaries: hold would count them)
      +100 B  parameter, which the formula leaves out
      +100 B  gradient, which the formula leaves out
       +20 B  activation, which the formula leaves out
       +20 B  temporary, which the formula leaves out

Warnings
  - something worth a second look, said at such a length that it has to go over
    the end of a line
  - the peak is not below the 280 B of no checkpointing: the recomputed layer is
    whole again before backward has freed any of it
)");
}

TEST_CASE("text: a narrow page in plain ASCII") {
  CHECK(page(small_model(), all_facts(), {.width = 60, .ascii = true}) == R"(
small tide
profile ideal: runtime ideal, kernels ideal, code reference,
loop plain
1,234,567 parameters | 1 step | 7 ops | 18 allocations and
frees

Peak        280 B  backward of layers.0.a, at 55 ns
Fits        no, 1 B above the 279 B of the budget
            (live bytes)
Policy      1 of 2 blocks runs again
            as high as without checkpointing, 280 B

(chart)

At the peak, by category
  parameter            100 B   35.7 %  ###
  gradient             100 B   35.7 %  ###
  input                 10 B    3.6 %
  activation            50 B   17.9 %  #
  temporary             20 B    7.1 %

Highest level by phase
  start              110 B
  forward            165 B
  loss               166 B
  recompute          180 B
  backward           280 B
  optimizer          210 B

The 4 largest of 6 tensors at the peak
      bytes       drop  tensor  held by
      100 B      100 B  w       parameter
      100 B       94 B  gw      gradient until the optimizer
       30 B       30 B  mid     read by the running op
       20 B       20 B  h       held until backward of a

Cost
              matrix FLOPs   other FLOPs          time
  forward          18 FLOP        5 FLOP         25 ns
  recompute         7 FLOP        2 FLOP         10 ns
  backward         36 FLOP                       40 ns
  optimizer                                       3 ns
  total            61 FLOP        7 FLOP         78 ns
  recomputing adds 13.0 % FLOPs and 14.7 % time | MFU 69.2 %
  | HFU 78.2 %
  (the textbook's 33.3 % takes backward as 2 forwards and
  recomputes all of forward: here 2.00 forwards, and 38.9 %
  recomputed)

The textbook formula
  ceil(2/1) x 10 B + 1 x 30 B = 50 B
  The simulated peak is 230 B higher:
       -10 B  1 of 2 boundaries: those of segments that are
              done have gone (boundaries: hold would count
              them)
      +100 B  parameter, which the formula leaves out
      +100 B  gradient, which the formula leaves out
       +20 B  activation, which the formula leaves out
       +20 B  temporary, which the formula leaves out

Warnings
  - something worth a second look, said at such a length
    that it has to go over the end of a line
  - the peak is not below the 280 B of no checkpointing: the
    recomputed layer is whole again before backward has
    freed any of it
)");
}

TEST_CASE("text: the least there is") {
  HandStep made;
  made.op("A", 0).alloc("t", 5).run().free("t");
  CHECK(page(made, {}, {.width = 80}) == R"(
tidemark
profile ideal: runtime ideal, kernels ideal, code reference, loop plain
1 step · 1 op · 2 allocations and frees

Peak        5 B  forward of A

(chart)

At the peak, by category                             Highest level by phase
  activation             5 B  100.0 %  ██████████      start                0 B
                                                       forward              5 B

The 1 tensor at the peak
      bytes       drop  tensor  held by
        5 B        5 B  t       held until forward of A
)");
}

TEST_CASE("text: several steps are told apart") {
  HandStep made;
  made.initial("w", 2000);
  for (int k = 0; k < 12; ++k) made.op("A", 1).at_step(k).alloc("t", k == 5 ? 5000 : 1000).run().free("t");
  const std::string text = page(made, {}, {.width = 80});
  CHECK(contains(text, "Peak        6.84 KiB  (7,000 B)  forward of A, step 5, at 5 ns\n"));
  CHECK(contains(text, R"(
Step by step
  step       start        peak         end  peak in
     0    1.95 KiB    2.93 KiB    1.95 KiB  forward of A
     1    1.95 KiB    2.93 KiB    1.95 KiB  forward of A
     2    1.95 KiB    2.93 KiB    1.95 KiB  forward of A
     3    1.95 KiB    2.93 KiB    1.95 KiB  forward of A
     …
     8    1.95 KiB    2.93 KiB    1.95 KiB  forward of A
     9    1.95 KiB    2.93 KiB    1.95 KiB  forward of A
    10    1.95 KiB    2.93 KiB    1.95 KiB  forward of A
    11    1.95 KiB    2.93 KiB    1.95 KiB  forward of A
)"));
}

TEST_CASE("text: does it fit, and what did the policy bring") {
  struct Case {
    std::string name;
    std::optional<Bytes> budget, usable, none;
    std::string line;
  };
  const Case cases[] = {
      {"fits the device", {}, Bytes{2048}, {}, "Fits        yes, 1.73 KiB below the 2.00 KiB of dev (live bytes)\n"},
      {"over the budget",
       Bytes{200},
       Bytes{2048},
       {},
       "Fits        no, 80 B above the 200 B of the budget (live bytes)\n"},
      {"lower", {}, {}, Bytes{400}, "Policy      120 B (30.0 %) lower than without checkpointing, 400 B\n"},
      {"higher", {}, {}, Bytes{200}, "Policy      80 B (40.0 %) higher than without checkpointing, 200 B\n"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    ScenarioFacts facts;
    facts.device = "dev";
    facts.budget = c.budget;
    facts.usable = c.usable;
    facts.no_checkpoint_peak = c.none;
    CHECK(contains(page(small_tide(), facts, {}), c.line));
  }
}

TEST_CASE("text: no line passes the width") {
  for (const int width : {60, 72, 79, 80, 100}) {
    CAPTURE(width);
    const std::string text = page(small_model(), all_facts(), {.width = width, .ascii = true});
    for (std::size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const std::string line = text.substr(begin, end - begin);
      CAPTURE(line);
      CHECK(line.size() <= static_cast<std::size_t>(width));
      CHECK_FALSE(line.ends_with(' '));
    }
  }
}

TEST_CASE("text: digits in groups of three") {
  struct Case {
    std::int64_t value;
    std::string text;
  };
  const Case cases[] = {{0, "0"},       {999, "999"},     {1000, "1,000"}, {1234567, "1,234,567"},
                        {-999, "-999"}, {-1000, "-1,000"}};
  for (const Case& c : cases) CHECK(grouped(c.value) == c.text);
}
