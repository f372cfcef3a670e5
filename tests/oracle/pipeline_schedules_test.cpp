// Do simulated pipelines wait as long as their schedules' authors say?
#include <doctest/doctest.h>

#include <cmath>

#include "support/csv.hpp"
#include "tidemark/engine/referee.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/study/pipeline.hpp"

using namespace tidemark;
using test::Row;

namespace {

Run run_row(const Row& row, const std::string& schedule, int chunks, const std::string& more = "") {
  const int stages = std::stoi(row.at("stages"));
  const auto part = [&](const char* key) { return std::stoll(row.at(key)) * 1000 / chunks; };
  const auto nanos = [](std::int64_t n) { return std::to_string(n) + " ns"; };
  const std::string text =
      "model: {family: chain, layers: " + std::to_string(stages * chunks) + ", layer_activation: " + row.at("saved") +
      " B, weight_activation: " + row.at("for_weights") + " B, forward_time: " + nanos(part("forward")) +
      ", backward_time: " + nanos(part("backward_input") + part("backward_weight")) +
      ", weight_time: " + nanos(part("backward_weight")) + "}\nparallel: {pipeline: " + row.at("stages") +
      ", virtual: " + std::to_string(chunks) + ", schedule: " + schedule +
      ", micro_batches: " + row.at("micro_batches") + ", transfer_time: " + row.at("transfer") + " us" + more + "}\n";
  return run(parse_scenario(text, "row.yaml"));
}

std::int64_t in_ten_thousandths(double rate) { return std::llround(rate * 10000); }

}  // namespace

TEST_CASE("pipeline schedules: bubble rates to four decimals") {
  for (const Row& row : test::table("tests/oracle/data/zero_bubble_rates.csv"))
    for (const std::string schedule : {"1f1b", "zb_h1", "zb_h2", "zb_1p", "zb_2p"}) {
      CAPTURE(row.at("model"));
      CAPTURE(row.at("micro_batches"));
      CAPTURE(schedule);
      const Run result = run_row(row, schedule, 1);
      CHECK(in_ten_thousandths(*result.pipeline->bubble_rate) == in_ten_thousandths(std::stod(row.at(schedule))));
      CHECK_FALSE(referee(result.step, result.timeline));
    }
}

// The program behind the authors' table lets a rank wait, where micro-batches turn from the last rank to the first
// one's next chunk, for the first of each group alone; the others may run before their data is there.
TEST_CASE("pipeline schedules: interleaved, counted as its authors do, to four decimals") {
  for (const Row& row : test::table("tests/oracle/data/zero_bubble_rates.csv")) {
    CAPTURE(row.at("model"));
    CAPTURE(row.at("micro_batches"));
    const Run theirs = run_row(row, "interleaved", 3, ", turn_waits: first");
    CHECK(in_ten_thousandths(*theirs.pipeline->bubble_rate) == in_ten_thousandths(std::stod(row.at("interleaved"))));
    CHECK_FALSE(referee(theirs.step, theirs.timeline));
    // Nobody computes on what has not come: each of the p transfers that they leave out is waited for once.
    const Run causal = run_row(row, "interleaved", 3);
    const Nanos waited = causal.pipeline->stages.front().span - theirs.pipeline->stages.front().span;
    CHECK(waited == std::stoll(row.at("stages")) * Nanos{std::stoll(row.at("transfer")) * 1000});
    CHECK_FALSE(referee(causal.step, causal.timeline));
  }
}
