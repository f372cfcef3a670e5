#include "tidemark/plan/pipeline_schedule.hpp"

#include <doctest/doctest.h>

#include "tidemark/base/errors.hpp"
#include "tidemark/input/schedule_file.hpp"

using namespace tidemark;

namespace {

using Lists = std::vector<std::string>;

Lists lists(const PipelineSchedule& schedule) {
  Lists out;
  for (const std::vector<Pass>& list : schedule.ranks) {
    out.emplace_back();
    for (const Pass& pass : list) out.back() += (out.back().empty() ? "" : " ") + to_string(pass);
  }
  return out;
}

/// Four equal times, so that what is best is plain.
std::vector<PassCosts> unit_costs(std::size_t ranks) { return {ranks, {{10}, {10}, {10}, {10}, {2}}}; }

}  // namespace

TEST_CASE("pipeline schedules: each rank's list") {
  struct Case {
    std::string name;
    PipelineSchedule schedule;
    Lists expected;
  };
  const Case cases[] = {
      {"gpipe: all forwards, then all backwards", gpipe(2, 2), {"0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1"}},
      {"1f1b: the last stage never runs ahead",
       one_forward_one_backward(3, 3),
       {"0F0 0F1 0F2 0B0 0B1 0B2", "1F0 1F1 1B0 1F2 1B1 1B2", "2F0 2B0 2F1 2B1 2F2 2B2"}},
      {"1f1b with fewer micro-batches than stages", one_forward_one_backward(3, 1), {"0F0 0B0", "1F0 1B0", "2F0 2B0"}},
      {"interleaved: one group runs all its forwards first",
       interleaved(2, 2, 2),
       {"0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1", "1F0 1F1 3F0 3F1 3B0 3B1 1B0 1B1"}},
      {"interleaved: two groups",
       interleaved(2, 2, 4),
       {"0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3",
        "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3"}},
      {"zb_h1: weights wait for as many micro-batches as the rank's number",
       zero_bubble_h1(2, 3),
       {"0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2", "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2"}},
      {"zb_h2: more forwards ahead",
       zero_bubble_h2(2, 3),
       {"0F0 0F1 0F2 0I0 0W0 0I1 0W1 0I2 0W2", "1F0 1I0 1F1 1I1 1F2 1I2 1W0 1W1 1W2"}},
      {"zb_v: down the ranks and up again",
       zero_bubble_v(2, 3),
       {"0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 3F2 3I2 3W2 0I1 0W1 0I2 0W2",
        "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1I1 2I2 1I2 1W1 2W2 1W2"}},
      {"zb_2p with equal times: nothing waits after the first forward",
       zero_bubble_searched(3, unit_costs(2), {}, Bytes{40}),
       {"0F0 0F1 0F2 0I0 0W0 0I1 0W1 0I2 0W2", "1F0 1I0 1F1 1I1 1F2 1I2 1W0 1W1 1W2"}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(lists(c.schedule) == c.expected);
    CHECK_NOTHROW(check_schedule(c.schedule));
  }
}

TEST_CASE("pipeline schedules: every size is complete and none deadlocks") {
  for (const std::string_view name : schedule_names)
    for (int ranks = 1; ranks <= 6; ++ranks)
      for (int micro_batches = 1; micro_batches <= 13; ++micro_batches) {
        CAPTURE(std::string(name));
        CAPTURE(ranks);
        CAPTURE(micro_batches);
        const int chunks = name == "zb_v" ? 2 : name == "interleaved" ? 3 : 1;
        if (name == "interleaved" && micro_batches % ranks != 0) continue;
        const PipelineSchedule schedule =
            make_schedule(name, ranks, chunks, micro_batches, unit_costs(static_cast<std::size_t>(ranks)), Nanos{3});
        CHECK_NOTHROW(check_schedule(schedule));
        CHECK(schedule.splits_backward() == name.starts_with("zb"));
      }
}

TEST_CASE("pipeline schedules: micro-batches in flight") {
  struct Case {
    std::string name;
    PipelineSchedule schedule;
    std::vector<int> expected;
  };
  const Case cases[] = {
      {"gpipe holds all", gpipe(3, 7), {7, 7, 7}},
      {"1f1b holds one fewer a rank", one_forward_one_backward(4, 9), {4, 3, 2, 1}},
      {"interleaved", interleaved(4, 2, 8), {11, 9, 7, 5}},
      {"zb_h2 holds about twice as many", zero_bubble_h2(4, 9), {7, 5, 3, 1}},
      {"zb_v holds the same on all", zero_bubble_v(4, 9), {8, 8, 8, 8}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(most_in_flight(c.schedule) == c.expected);
  }
}

TEST_CASE("pipeline schedules: zb_1p holds no more than 1f1b, zb_2p no more than twice that") {
  for (int ranks = 2; ranks <= 8; ++ranks) {
    CAPTURE(ranks);
    const auto costs = unit_costs(static_cast<std::size_t>(ranks));
    for (const auto& [name, most] : {std::pair("zb_1p", ranks), std::pair("zb_2p", 2 * ranks)}) {
      const PipelineSchedule schedule = make_schedule(name, ranks, 1, 3 * ranks, costs);
      for (const std::vector<Pass>& list : schedule.ranks) {
        std::int64_t held = 0, highest = 0;
        for (const Pass& pass : list) {
          held += pass.kind == PassKind::forward ? 10 : pass.kind == PassKind::backward_input ? -2 : -8;
          highest = std::max(highest, held);
        }
        CHECK(highest <= 10 * most);
        CHECK(held == 0);
      }
    }
  }
}

TEST_CASE("custom schedules: what is refused") {
  struct Case {
    std::string name, text, message;
  };
  const Case cases[] = {
      {"two passes that wait for each other", "0F0,0B0\n1B0,1F0\n",
       "s.csv: error: '1B0' of rank 1 stands before its forward"},
      {"a deadlock over two ranks", "0F0,0F1,0B1,0B0\n1F0,1B0,1F1,1B1\n", ""},
      {"a deadlock", "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n",
       "s.csv: error: the schedule deadlocks: '0B0' of rank 0 waits for '1B0' of rank 1, and '1F1' of rank 1, which "
       "stands before that, waits for '0F1' of rank 0"},
      {"no pass", "0F0,0X0\n",
       "s.csv:1:5: error: 0X0 is no pass; expected a chunk, one of F, B, I, W, and a micro-batch, such as 0F0"},
      {"an empty line", "0F0,0B0\n\n1F0,1B0\n",
       "s.csv:2:1: error: an empty line; expected the passes of one rank, such as 0F0,0B0"},
      {"a chunk on two ranks", "0F0,0B0\n0F1,0B1\n",
       "s.csv:2:1: error: chunk 0 of pass 0F1 belongs to rank 0, which has it in an earlier row"},
      {"a chunk left out", "0F0,0B0\n2F0,2B0\n", "s.csv: error: the schedule has chunk 2 but no chunk 1"},
      {"a pass twice", "0F0,0F0,0B0\n", "s.csv: error: '0F0' of rank 0 stands twice; expected each pass once"},
      {"a pass that is missing", "0F0,0I0\n", "s.csv: error: the schedule lacks '0W0' on rank 0"},
      {"weights before their input", "0F0,0W0,0I0\n",
       "s.csv: error: '0W0' of rank 0 stands before the backward of its input"},
      {"a micro-batch that only one rank has", "0F0,0B0\n1F0,1F1,1B0,1B1\n",
       "s.csv: error: the schedule lacks '0F1' on rank 0"},
      {"nothing", ",\n", "s.csv: error: the schedule has no pass; expected one row a rank"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    if (c.message.empty())
      CHECK_NOTHROW(parse_schedule(c.text, "s.csv"));
    else
      CHECK_THROWS_WITH_AS(parse_schedule(c.text, "s.csv"), c.message.c_str(), InputError);
  }
}
