#include <doctest/doctest.h>

#include "support/csv.hpp"
#include "support/torch_nets.hpp"
#include "support/torch_plans.hpp"
#include "support/torch_streams.hpp"
#include "tidemark/step/lower.hpp"

using namespace tidemark;
using test::Row;

TEST_CASE("recorded PyTorch steps: every allocation and free") {
  for (const Row& row : test::table("tests/oracle/data/torch_steps.csv")) {
    const std::string name = row.at("version") + " " + row.at("name");
    CAPTURE(name);
    const Program program = test::torch_net(row.at("family"), test::settings(row.at("net")));
    const Step step =
        lower(program, test::torch_plan(program, test::settings(row.at("policy"))), test::torch_training(row));
    const std::size_t live = test::split(row.at("live"), ' ').size();
    CHECK(test::difference(test::events_of(step, live), test::split(row.at("events"), ' ')) == "");
  }
}
