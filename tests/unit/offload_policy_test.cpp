// What `offload` moves, when it goes and comes back, and what that does to the level, the peak and the time.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tidemark/base/errors.hpp"
#include "tidemark/engine/referee.hpp"
#include "tidemark/input/plan_file.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/plan/sequence.hpp"
#include "tidemark/report/summary.hpp"
#include "tidemark/study/facts.hpp"
#include "tidemark/study/pipeline.hpp"

using namespace tidemark;

namespace {

const std::string chain =
    "model: {family: chain, layers: 4, layer_activation: 100 B, boundary: 10 B, forward_time: 100 ns, backward_time: "
    "200 "
    "ns}\n";
const std::string decoder =
    "profile: pytorch-cuda\n"
    "model: {family: transformer, model_type: llama, layers: 4, hidden: 64, heads: 4, kv_heads: 2, ffn_hidden: 128, "
    "vocab: 96, max_positions: 64, attention: flash}\n"
    "batch: {size: 2, sequence: 32}\ndtype: {parameters: bfloat16, compute: bfloat16}\n";

Scenario scenario_of(const std::string& model, const std::string& policy, const std::string& rate = "") {
  const std::string device =
      rate.empty() ? "" : "device: {name: d, copy_bandwidth: {to_host: " + rate + ", to_device: " + rate + "}}\n";
  return parse_scenario(model + device + "policy: " + policy + "\n", "t.yaml");
}

Summary summary_of(const Scenario& scenario, const Run& result) {
  return summarize(result.step, result.timeline, scenario_facts(scenario, result));
}

std::string fault_of(const std::string& model, const std::string& policy) {
  try {
    run(scenario_of(model, policy));
  } catch (const InputError& error) {
    return error.message();
  }
  return "";
}

Bytes moved_out(const Step& step) {
  Bytes sum;
  for (const HostBlock& block : step.host) sum += block.bytes;
  return sum;
}

}  // namespace

TEST_CASE("offload policy: where copies stand in the plan") {
  struct Case {
    std::string name, policy, plan;
  };
  const Case cases[] = {
      {"a layer leaves when the next has read its output; the last is read by the loss and stays", "{kind: offload}",
       "Fe0 Fe1 Out0 Fe2 Out1 Fe3 Out2 L In2 In1 B3 In0 B2 B1 B0"},
      {"asked back when it is needed", "{kind: offload, prefetch: 0}",
       "Fe0 Fe1 Out0 Fe2 Out1 Fe3 Out2 L In2 B3 In1 B2 In0 B1 B0"},
      {"two blocks ahead", "{kind: offload, prefetch: 2}", "Fe0 Fe1 Out0 Fe2 Out1 Fe3 Out2 L In2 In1 In0 B3 B2 B1 B0"},
      {"more blocks ahead than there are", "{kind: offload, prefetch: 9}",
       "Fe0 Fe1 Out0 Fe2 Out1 Fe3 Out2 L In2 In1 In0 B3 B2 B1 B0"},
      {"some layers", "{kind: offload, layers: \"1\"}", "Fe0 Fe1 Fe2 Out1 Fe3 L In1 B3 B2 B1 B0"},
      {"the first two thirds of 300 B", "{kind: offload, fraction: 0.67}",
       "Fe0 Fe1 Out0 Fe2 Out1 Fe3 L In1 B3 In0 B2 B1 B0"},
      {"not quite that", "{kind: offload, fraction: 0.66}", "Fe0 Fe1 Out0 Fe2 Fe3 L B3 In0 B2 B1 B0"},
      {"nothing", "{kind: offload, fraction: 0}", "Fe0 Fe1 Fe2 Fe3 L B3 B2 B1 B0"},
      {"freed where computation waits, a block later", "{kind: offload, wait_after: 1}",
       "Fe0 Fe1 Out0 Fe2 Wait0 Out1 Fe3 Wait1 Out2 L In2 In1 B3 In0 B2 B1 B0"},
      {"of layers that run again their inputs, but not the batch", "{kind: full, offload: {}}",
       "Fc0 Fc1 Out1 Fc2 Out2 Fc3 Out3 L In3 In2 Fe3 B3 In1 Fe2 B2 Fe1 B1 Fe0 B0"},
      {"of a region its first input", "{kind: interval, interval: 2, offload: {}}",
       "Fc0 Fn1 Fc2 Out2 Fn3 L In2 Fe2 Fe3 B3 B2 Fe0 Fe1 B1 B0"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    std::string policy = c.policy;
    policy.insert(policy.find("offload: {") == std::string::npos ? policy.size() - 1 : policy.size() - 2,
                  policy.ends_with("{}}") ? "min_size: 0 B" : ", min_size: 0 B");
    const Run result = run(scenario_of(chain, policy, "1 GB/s"));
    CHECK(to_sequence(result.plan, result.outline) == c.plan);
    CHECK_FALSE(referee(result.step, result.timeline));
  }
}

TEST_CASE("offload policy: the level after forward falls by all that moved, whatever runs again") {
  struct Case {
    std::string name, policy, without;
  };
  const Case cases[] = {
      {"nothing runs again", "{kind: offload}", "none"},
      {"every block, as the plan stands", "{kind: full, offload: {}}", "full"},
      {"non-reentrant", "{kind: full, checkpointing: nonreentrant, offload: {}}",
       "{kind: full, checkpointing: nonreentrant}"},
      {"reentrant", "{kind: full, checkpointing: reentrant, offload: {}}", "{kind: full, checkpointing: reentrant}"},
      {"regions of two", "{kind: interval, interval: 2, offload: {}}", "{kind: interval, interval: 2}"},
      {"a part of each block", "{kind: selective, recompute: [mlp], offload: {}}",
       "{kind: selective, recompute: [mlp]}"},
      {"all recomputation up front", "{kind: full, schedule: up_front, offload: {}}",
       "{kind: full, schedule: up_front}"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const Scenario scenario = scenario_of(decoder, c.policy), plain = scenario_of(decoder, c.without);
    const Run with = run(scenario), without = run(plain);
    const Summary summary = summary_of(scenario, with);
    const Bytes moved = moved_out(with.step);
    CHECK(moved > Bytes{});
    CHECK(*summary.last().forward_end == *summary_of(plain, without).last().forward_end - moved);
    CHECK(summary.offload.without ==
          WithoutCopies{without.timeline.peak, summary_of(plain, without).last().forward_end});
    CHECK(summary.offload.moved_out == moved);
    CHECK(summary.offload.moved_in == moved);
    CHECK(summary.offload.host_peak == moved);
    CHECK(summary.last().flops.total == summary_of(plain, without).last().flops.total);
    CHECK_FALSE(referee(with.step, with.timeline));
  }
}

TEST_CASE("offload policy: parameters, the batch and what is small stay") {
  for (const std::int64_t least : {0, 1000, 8000, 16000}) {
    CAPTURE(least);
    const Run result = run(scenario_of(decoder, "{kind: offload, min_size: " + std::to_string(least) + " B}"));
    Bytes smallest_moved{1'000'000};
    for (const HostBlock& block : result.step.host) {
      smallest_moved = std::min(smallest_moved, block.bytes);
      CHECK(result.step.names[block.name].find("weight") == std::string::npos);
    }
    CHECK(smallest_moved.count >= least);
    CHECK_FALSE(result.step.host.empty());
  }
  const auto count = [](const std::string& least) {
    return run(scenario_of(decoder, "{kind: offload, min_size: " + least + "}")).step.host.size();
  };
  CHECK(count("0 B") > count("1000 B"));
  CHECK(count("1 GiB") == 0);
}

TEST_CASE("offload policy: copies that free only at the wait") {
  struct Case {
    std::string name, policy;
    int layers_gone;  // of three that move
  };
  // compute   |F0 |F1 |F2 |F3 |L
  // copy_out          |O0 |O1 |O2
  const Case cases[] = {
      {"when it is copied: two copies of three have ended", "{kind: offload, min_size: 0 B}", 2},
      {"computation waits a block later: for two of three", "{kind: offload, min_size: 0 B, wait_after: 1}", 2},
      {"two blocks later: for the first", "{kind: offload, min_size: 0 B, wait_after: 2}", 1},
      {"three blocks later, when forward is over: for none", "{kind: offload, min_size: 0 B, wait_after: 3}", 0},
      {"later than there are blocks: nothing is freed", "{kind: offload, min_size: 0 B, wait_after: 4}", 0},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const Scenario scenario = scenario_of(chain, c.policy, "1 GB/s");
    const Run result = run(scenario);
    const Summary summary = summary_of(scenario, result);
    CHECK(*summary.last().forward_end == *summary.offload.without->forward_end - Bytes{100 * c.layers_gone});
    if (c.layers_gone == 0) {
      CHECK(summary.offload.moved_in == Bytes{});  // it never left
      CHECK(result.timeline.peak == summary.offload.without->peak);
    }
    CHECK_FALSE(referee(result.step, result.timeline));
  }
}

TEST_CASE("offload policy: does it lower the peak, and where is what moved then?") {
  struct Case {
    std::string name, model, policy, rate;
    std::int64_t gain;
    CopiedAtPeak at_peak;
  };
  const Case cases[] = {
      {"the peak falls: it stands in forward, where three layers are held but never all four",
       chain,
       "{kind: offload, min_size: 0 B, prefetch: 0}",
       "1 GB/s",
       100,
       {{0}, {300}, {0}, {0}, {0}}},
      {"a link so slow that both copies are held at once: the peak rises",
       chain,
       "{kind: offload, min_size: 0 B, prefetch: 9}",
       "100 MB/s",
       -300,
       {{0}, {300}, {0}, {0}, {0}}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const Scenario scenario = scenario_of(c.model, c.policy, c.rate);
    const Run result = run(scenario);
    const Summary summary = summary_of(scenario, result);
    CHECK(*summary.last().forward_end < *summary.offload.without->forward_end + Bytes{c.gain < 0 ? 1 : 0});
    CHECK((summary.offload.without->peak - result.timeline.peak).count == c.gain);
    CHECK(summary.offload.at_peak == c.at_peak);
  }
}

TEST_CASE("offload policy: the level after forward falls and the peak does not where gradients make it") {
  std::string tokens = decoder;
  tokens.replace(tokens.find("size: 2, sequence: 32"), 21, "size: 1, sequence: 8");
  const Scenario scenario = scenario_of(tokens, "{kind: full, offload: {min_size: 0 B}}");
  const Run result = run(scenario);
  const Summary summary = summary_of(scenario, result);
  CHECK(summary.offload.moved_out > Bytes{});
  CHECK(*summary.last().forward_end < *summary.offload.without->forward_end);
  CHECK(result.timeline.peak == summary.offload.without->peak);
  CHECK(summary.offload.at_peak == CopiedAtPeak{{}, {}, {}, {}, summary.offload.moved_out});
}

TEST_CASE("offload policy: the referee sees what comes back before it is out, or not all of it") {
  const Run good = run(scenario_of(chain, "{kind: offload, layers: \"0-1\", min_size: 0 B}", "1 GB/s"));
  REQUIRE_FALSE(referee(good.step, good.timeline));
  Step too_early = good.step;  // In1 runs before In0 does
  too_early.host[1].out = too_early.host[0].back;
  Step short_of_one = good.step;
  short_of_one.host[1].bytes -= Bytes{1};
  const auto verdict = [&](const Step& step) {
    const std::optional<Violation> found = referee(step, good.timeline);
    return found ? std::string(to_string(found->fault)) : "valid";
  };
  CHECK(verdict(too_early) == "read_too_early");
  CHECK(verdict(short_of_one) == "wrong_size");
  Step unknown = good.step;
  unknown.host[0].back = 999;
  CHECK(verdict(unknown) == "unknown");
}

TEST_CASE("offload policy: what is refused") {
  struct Case {
    std::string name, model, policy, message;
  };
  const std::string nothing_but =
      "' saves nothing but parameters and the batch, which are never freed; expected a module that saves activations";
  const Case cases[] = {
      {"a module that holds nothing that is ever freed", decoder, "{kind: offload, modules: [view]}", ""},
      {"a layer of numbers in parts", chain, "{kind: offload, modules: [attention]}",
       "a layer given by numbers moves as a whole; expected no 'modules'"},
      {"layers out of range", chain, "{kind: offload, layers: \"2-4\"}",
       "'layers' must be ranges of the layers 0 to 3, not 2-4"},
      {"what runs again", decoder, "{kind: full, offload: {modules: [mlp]}}",
       "offload finds nothing to move: the modules run again and hold nothing; expected modules that the policy keeps, "
       "or no 'modules' for the regions' inputs"},
      {"only the last layer of a chain", chain, "{kind: offload, layers: \"3\"}",
       "offload finds nothing to move: the chosen layers hold nothing between forward and backward but what is never "
       "freed (parameters, the batch) or is needed at once"},
      {"twice", decoder, "{kind: full, checkpointing: {kind: offload}, offload: {}}",
       "checkpointing offload copies what blocks save already; expected one of it and 'offload'"},
      {"a plan with copies", chain, "{kind: plan, sequence: \"Fe0 Fe1 Out0 Fe2 Fe3 L B3 B2 In0 B1 B0\", offload: {}}",
       "the plan has copies of its own; expected no 'offload'"},
      {"used between out and in", decoder, "{kind: plan, sequence: \"Fe0 Out0 Fe1 Fe2 Fe3 L B3 B2 B1 B0\"}",
       "step 14 of the plan, B0, needs what op 'mlp_residual' saved, which is on the host"},
      {"run again between out and in", decoder, "{kind: plan, sequence: \"Fc0 Out0 Fe1 Fe2 Fe3 L B3 B2 B1 Fe0 B0\"}",
       "step 14 of the plan, Fe0, needs its input, which is on the host"},
      {"back without out", decoder, "{kind: plan, sequence: \"Fe0 Fe1 Fe2 Fe3 L In0 B3 B2 B1 B0\"}",
       "step 10 of the plan, In0, brings back what is not on the host"},
      {"out twice", decoder, "{kind: plan, sequence: \"Fe0 Out0 Out0 Fe1 Fe2 Fe3 L In0 B3 B2 B1 B0\"}",
       "step 4 of the plan, Out0, copies out what is not there"},
      {"a wait for nothing", decoder, "{kind: plan, sequence: \"Fe0 Wait0 Fe1 Fe2 Fe3 L B3 B2 B1 B0\"}",
       "step 3 of the plan, Wait0, waits for what is not copied out"},
      {"a wait for nothing, of a chain", chain, "{kind: plan, sequence: \"Fe0 Wait0 Fe1 Fe2 Fe3 L B3 B2 B1 B0\"}",
       "step 2 of the plan: Wait0 waits for what is not copied out; expected Out0 before it"},
      {"where the host is the device", "profile: pytorch-2.6-cpu\n" + decoder.substr(decoder.find("model")),
       "{kind: offload}",
       "kernels cpu-2.6 run where the host's memory is the device's; expected a plan without copies"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(fault_of(c.model, c.policy) == (c.message.empty() ? "'view" + nothing_but : c.message));
  }
}

TEST_CASE("offload policy: a copy of what others hold too frees nothing, and the plan says so") {
  const Run both = run(scenario_of(decoder, "{kind: offload, modules: [attention]}"));
  const Run one = run(scenario_of(decoder, "{kind: offload, modules: [o_proj]}"));
  CHECK(both.plan.warnings.empty());
  REQUIRE(one.plan.warnings.size() == 1);
  CHECK(one.plan.warnings.front().starts_with("offload of 'attention.o_proj' copies what '"));
  CHECK(one.timeline.peak >= run(scenario_of(decoder, "none")).timeline.peak);
}

TEST_CASE("offload policy: a plan file holds its copies") {
  const Scenario scenario = scenario_of(decoder, "{kind: full, offload: {min_size: 2 KiB, wait_after: 1}}");
  const Run made = run(scenario);
  const std::string file = write_plan(made.plan, made.outline);
  CHECK(file.find("copies: {min_size: 2048 B, free: waited}\n") != std::string::npos);
  CHECK(parse_plan(file, "p.yaml", made.outline) == made.plan);
}

TEST_CASE("offload policy: the host's own timeline") {
  const Run result = run(scenario_of(chain, "{kind: offload, layers: \"0-1\", min_size: 0 B}", "1 GB/s"));
  std::string csv;
  write_host_timeline_csv(result.step, result.timeline, [&](std::string_view text) { csv += text; });
  CHECK(csv ==
        "seq,time_ns,step,rank,event,op,tensor,bytes,host_bytes,id\n"
        "0,200,0,0,alloc,Out0,saved0,100,100,0\n"
        "1,300,0,0,alloc,Out1,saved1,100,200,1\n"
        "2,500,0,0,free,In1,saved1,100,100,1\n"
        "3,700,0,0,free,In0,saved0,100,0,0\n");
}
