// Do copies to the host and back free what they should, when they should?
#include <doctest/doctest.h>

#include "tidemark/base/errors.hpp"
#include "tidemark/engine/referee.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/report/summary.hpp"
#include "tidemark/study/facts.hpp"
#include "tidemark/study/pipeline.hpp"

using namespace tidemark;
using Rows = std::vector<std::string>;

namespace {

/// Three layers of 100 B that run 100 ns forward and 200 backward; a copy moves 1 B/ns or as `rate` says.
Scenario three_layers(const std::string& sequence, const std::string& rate = "1 GB/s") {
  return parse_scenario(
      "model: {family: chain, layers: 3, layer_activation: 100 B, forward_time: 100 ns, backward_time: 200 ns}\n"
      "device: {name: d, copy_bandwidth: {to_host: " +
          rate + ", to_device: " + rate +
          "}}\n"
          "policy: {kind: plan, sequence: \"" +
          sequence + "\"}\n",
      "t.yaml");
}

/// "100 +saved1 200": time, alloc or free, the level after it.
Rows events(const Run& result) {
  Rows out;
  for (const MemoryEvent& event : result.timeline.events)
    out.push_back(to_string(event.time) + (event.is_alloc() ? " +" : " -") +
                  result.step.names[result.step.storages[event.storage].name] + " " + to_string(event.live));
  return out;
}

Summary summary_of(const Scenario& scenario, const Run& result) {
  return summarize(result.step, result.timeline, scenario_facts(scenario, result));
}

std::string fault_of(const std::string& sequence) {
  try {
    run(three_layers(sequence));
  } catch (const InputError& error) {
    return error.message();
  }
  return "";
}

}  // namespace

TEST_CASE("offload: a storage leaves when its copy has ended and is back before it is read") {
  struct Case {
    std::string name, sequence, rate;
    Rows events;
  };
  const Case cases[] = {
      // compute  | F0 | F1 | F2 |   B2   |      |   B1   |   B0   |
      // copy_out           | Out0 |                                  starts when F1 has read what layer 0 made
      // copy_in                          | In0 |                     B1 reads layer 0's output, and waits
      {"asked back when it is needed: the level falls in between, and backward waits for the whole copy",
       "Fe0 Fe1 Out0 Fe2 L B2 In0 B1 B0",
       "1 GB/s",
       {"0 +saved0 100", "100 +saved1 200", "200 +saved2 300", "300 -saved0 200", "500 -saved2 100", "500 +saved0 200",
        "800 -saved1 100", "1000 -saved0 0"}},
      {"asked back a backward ahead: nothing waits, and nothing is gained, for it is back before the level falls",
       "Fe0 Fe1 Out0 Fe2 L In0 B2 B1 B0",
       "1 GB/s",
       {"0 +saved0 100", "100 +saved1 200", "200 +saved2 300", "300 -saved0 200", "300 +saved0 300", "500 -saved2 200",
        "700 -saved1 100", "900 -saved0 0"}},
      {"a slow copy: the storage stays until it has ended, long after it was last used",
       "Fe0 Fe1 Out0 Fe2 L B2 In0 B1 B0",
       "500 MB/s",
       {"0 +saved0 100", "100 +saved1 200", "200 +saved2 300", "400 -saved0 200", "500 -saved2 100", "500 +saved0 200",
        "900 -saved1 100", "1100 -saved0 0"}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const Run result = run(three_layers(c.sequence, c.rate));
    CHECK(events(result) == c.events);
    CHECK_FALSE(referee(result.step, result.timeline));
  }
}

TEST_CASE("offload: the host's bytes, the copies' time, and what of it is exposed") {
  struct Case {
    std::string name, sequence;
    OffloadFigures offload;
    Nanos exposed;
  };
  const Case cases[] = {
      // the last two figures: of the copies the one back; at the peak, in F2, what moved is still on the device
      {"nothing copied", "Fe0 Fe1 Fe2 L B2 B1 B0", {}, {}},
      {"exposed: the copy back starts when its reader is next",
       "Fe0 Fe1 Out0 Fe2 L B2 In0 B1 B0",
       {2, {100}, {100}, {100}, {200}, {100}, {{}, {100}, {}, {}, {}}, WithoutCopies{{300}, Bytes{300}}, {100}},
       {100}},
      {"hidden: it starts before the backward ahead of it",
       "Fe0 Fe1 Out0 Fe2 L In0 B2 B1 B0",
       {2, {100}, {100}, {100}, {200}, {100}, {{}, {100}, {}, {}, {}}, WithoutCopies{{300}, Bytes{300}}},
       {}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const Scenario scenario = three_layers(c.sequence);
    const Summary summary = summary_of(scenario, run(scenario));
    CHECK(summary.offload == c.offload);
    CHECK(summary.last().time.exposed == c.exposed);
    CHECK(summary.no_checkpoint_peak.has_value() == (c.offload.copies > 0));
  }
}

// compute    | F0 |       | F1 | F2 |   B2   |      |      | F1 |   B1   | F0 |   B0   |
// copies          | Outx1 |                  | Inx1 | Inx1 |                               nothing runs meanwhile
// boundary1  -----------------|              |------|----------------------|
TEST_CASE(
    "offload: a layer's input is copied while nothing runs, stays on the host, and comes back as often as wanted") {
  Scenario scenario = three_layers("Fc0 Outx1 Fn1 Fe2 L B2 Inx1 Dx1 Inx1 Fe1 B1 Fe0 B0");
  auto& graph = std::get<LayerGraph>(scenario.model);
  graph.input = Bytes{10};
  for (LayerCost& layer : graph.layers) layer.output = Bytes{50};
  const Run result = run(scenario);
  CHECK_FALSE(referee(result.step, result.timeline));
  CHECK(result.timeline.end == Nanos{5 * 100 + 3 * 200 + 3 * 50});
  Rows of_boundary;
  for (const std::string& row : events(result))
    if (row.find("boundary1 ") != std::string::npos) of_boundary.push_back(row);
  CHECK(of_boundary == Rows{"0 +boundary1 60", "250 -boundary1 60", "550 +boundary1 60", "600 -boundary1 10",
                            "600 +boundary1 60", "950 -boundary1 110"});
  const Summary summary = summary_of(scenario, result);
  CHECK(summary.offload.copies == 3);
}

TEST_CASE("offload: what is refused") {
  struct Case {
    std::string name, sequence, message;
  };
  const Case cases[] = {
      {"what never comes back", "Fe0 Fe1 Out0 Fe2 L B2 B1 B0",
       "step 7 of the plan: B1 needs the input of layer 1, dropped by Out0"},
      {"what the next layer has yet to read", "Fe0 Out0 Fe1 Fe2 L B2 B1 B0",
       "step 3 of the plan: Fe1 needs the input of layer 1, dropped by Out0"},
      {"what was not moved", "Fe0 Fe1 In0 Fe2 L B2 B1 B0",
       "step 3 of the plan: In0 brings back what is not on the host; expected Out0 before it"},
      {"what has gone already", "Fe0 Fe1 Out0 Out0 Fe2 L B2 B1 B0",
       "step 4 of the plan: Out0 needs the saved activations of layer 0, dropped by Out0"},
      {"an input that was not copied", "Fn0 Fe1 Fe2 L B2 B1 Inx0 Fe0 B0",
       "step 7 of the plan, Inx0, brings back what is not on the host"},
      {"an input that is there", "Outx0 Fc0 Fe1 Fe2 L B2 B1 Inx0 Fe0 B0",
       "step 8 of the plan: Inx0 makes the input of layer 0, which is still there"},
      {"an input that has gone", "Fn0 Outx0 Fe1 Fe2 L B2 B1 Inx0 Fe0 B0",
       "step 2 of the plan, Outx0, needs the model's input, which was given up"},
      {"what saved nothing", "Fc0 Fe1 Out0 Fe2 L B2 B1 Fe0 B0",
       "step 3 of the plan: Out0 needs the saved activations of layer 0, dropped by Fc0"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(fault_of(c.sequence) == c.message);
  }
}
