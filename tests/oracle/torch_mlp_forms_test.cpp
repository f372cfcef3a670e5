#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <map>

#include "support/torch_nets.hpp"
#include "support/torch_plans.hpp"
#include "tidemark/step/lower.hpp"

using namespace tidemark;

namespace {

struct Setting {
  int layers, interval, rows, width, hidden;  // interval 0: no checkpointing
  bool reentrant;
  std::string version;
};

Step simulated(const Setting& s) {
  const auto n = [](int value) { return std::to_string(value); };
  const Program program =
      test::torch_net("mlp", {{"L", n(s.layers)}, {"n", n(s.rows)}, {"d", n(s.width)}, {"h", n(s.hidden)}});
  std::map<std::string, std::string> policy = {{"kind", "none"}};
  if (s.interval > 0)
    policy = {
        {"kind", "every"}, {"K", n(s.interval)}, {"last", "1"}, {"reentrant", s.reentrant ? "1" : "0"}, {"rng", "0"}};
  return lower(program, test::torch_plan(program, policy),
               test::torch_training({{"version", s.version},
                                     {"optimizer", "none"},
                                     {"zero_grad", "keep"},
                                     {"micro_batches", "1"},
                                     {"warm", "0"}}));
}

struct Crest {
  Bytes peak;
  bool in_backward = false;  // the recomputation included
};

/// Highest level above parameters, inputs and their gradients.
Crest activation_crest(const Step& step) {
  Crest out;
  Bytes live;
  for (const Instruction& i : step.instructions) {
    if (i.what != Do::alloc && i.what != Do::free) continue;
    const StepStorage& storage = step.storages[i.index];
    const bool of_leaf = storage.category == Category::gradient && step.names[storage.name] != "loss.mse.grad";
    if (of_leaf) continue;
    live = i.what == Do::alloc ? live + storage.bytes : live - storage.bytes;
    const Phase phase = step.ops[i.op].phase;
    if (live > out.peak) out = {live, phase == Phase::backward || phase == Phase::recompute};
  }
  return out;
}

/// max over segments of 4 + B + (j - 1) B + k (H + B) + 2 H + r: the seed, the kept squares, earlier boundaries, the
/// segment's layers, two hidden gradients, and the output and gradient that a reentrant call keeps.
Bytes closed_form(const Setting& s) {
  const std::int64_t boundary = std::int64_t{4} * s.rows * s.width, hidden = std::int64_t{4} * s.rows * s.hidden;
  const int interval = s.interval == 0 ? s.layers : s.interval;
  const std::int64_t kept = s.reentrant && s.interval > 0 ? 2 * boundary : 0;
  std::int64_t highest = 0;
  for (int first = 0, j = 0; first < s.layers; first += interval, ++j) {
    const std::int64_t k = std::min(interval, s.layers - first);
    highest = std::max(highest, 4 + boundary + (j - 1) * boundary + k * (hidden + boundary) + 2 * hidden + kept);
  }
  return Bytes{highest};
}

}  // namespace

TEST_CASE("the MLP's activation peak in backward is the closed form") {
  int narrow_outside_backward = 0;
  for (const std::string version : {"1.13", "2.6"})
    for (const int layers : {4, 7, 12, 36})
      for (const int interval : {0, 1, 2, 3, 5, 6, 12})
        for (const bool reentrant : {false, true})
          for (const auto& [rows, width, hidden] :
               {std::array{256, 32, 64}, {64, 48, 16}, {100, 20, 200}, {8, 40, 64}}) {
            if (interval > layers || (interval == 0 && reentrant)) continue;
            const Setting s{layers, interval, rows, width, hidden, reentrant, version};
            const Crest crest = activation_crest(simulated(s));
            CAPTURE(version);
            CAPTURE(layers);
            CAPTURE(interval);
            CAPTURE(reentrant);
            CAPTURE(hidden);
            if (2 * hidden >= 3 * width) {  // else the recomputed output beside its product is higher (1.13)
              CHECK(crest.in_backward);
              CHECK(crest.peak.count == closed_form(s).count);
              continue;
            }
            // A hidden layer narrower than a boundary: the products' gradients, or the loss, are higher than the form.
            CHECK(crest.peak >= closed_form(s));
            if (!crest.in_backward) {
              ++narrow_outside_backward;
              CHECK(interval <= 1);  // no checkpointing, or one layer a segment
            }
          }
  CHECK(narrow_outside_backward > 0);
}

TEST_CASE("early stop: how many products a recomputation runs, 24 in forward") {
  struct Case {
    std::string name;
    int interval;
    bool reentrant;
    std::string version;
    int recomputed;
  };
  const Case cases[] = {
      {"one layer a segment: the last product's operands are enough", 1, false, "2.6", 12},
      {"three layers a segment", 3, false, "2.6", 20},
      {"one segment", 12, false, "2.6", 23},
      {"reentrant runs all", 1, true, "2.6", 24},
      {"1.13 has no early stop", 3, false, "1.13", 24},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const Step step = simulated({12, c.interval, 256, 32, 64, c.reentrant, c.version});
    std::int64_t recomputed = 0, forward = 0;
    for (const StepOp& op : step.ops) {
      if (op.phase == Phase::recompute) recomputed += op.flops;
      if (op.phase == Phase::forward) forward += op.flops;
    }
    CHECK(forward == std::int64_t{24} * 2 * 256 * 32 * 64);
    CHECK(recomputed == std::int64_t{c.recomputed} * 2 * 256 * 32 * 64);
  }
}
