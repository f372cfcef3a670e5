// tidemark-native: a real training step, whose every allocation, free, FLOP and nanosecond is written down.
//
// Knows nothing of the simulator. It is told a model's shape and, by a plan file, what to keep and what to run again.

#include <charconv>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heap.hpp"
#include "kernels.hpp"
#include "measure.hpp"
#include "mlp.hpp"
#include "plan_file.hpp"
#include "transformer.hpp"

namespace tidemark::native {
namespace {

constexpr std::string_view help = R"(Usage: tidemark-native MODEL [--key value ...]
Runs a training step on this machine and writes down what it did.

  mlp            the chain h = relu(x w1 + b1) w2 + b2
    --layers 4 --rows 256 --width 32 --hidden 64
    --save-pre-activation     backward reads the pre-activation instead of building it again
    --hold-out                the caller keeps the chain's result through backward

  transformer    a pre-norm decoder as GPT-2 is built, trained by AdamW
    --layers 2 --hidden 64 --heads 4 --ffn-hidden 256 --vocab 128 --positions 64 --batch 2 --sequence 32
    --untied                  the head has a table of its own
    --accumulate 1            micro-batches a step
    --optimizer adamw         or adamw-fused (no temporaries), none

Any model:
    --plan FILE        what to keep and what to run again, as 'tidemark run --plan-out' writes it; else all is kept
    --steps 1          training steps
    --repeat 1         measured runs, each on a model made anew, after one to warm up; the fastest is written down
    --threads 1        OpenBLAS's threads
    --timeline FILE    every allocation and free (CSV); '-' is standard output, and then nothing else is printed
    --ops FILE         every op with its FLOPs and times (CSV)
)";

/// What stands on the command line, each key once; reading a key takes it out, and what is left is unknown.
class Options {
 public:
  explicit Options(const std::vector<std::string>& words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (!words[i].starts_with("--")) throw Mistake("error: expected an option, not '" + words[i] + "'");
      const bool has_value = i + 1 < words.size() && !words[i + 1].starts_with("--");
      if (!values_.emplace(words[i], has_value ? words[i + 1] : "").second)
        throw Mistake("error: '" + words[i] + "' stands twice");
      i += has_value ? 1 : 0;
    }
  }

  std::string text(const std::string& key) {
    const auto found = values_.find(key);
    if (found == values_.end()) return "";
    if (found->second.empty()) throw Mistake("error: '" + key + "' needs a value");
    return values_.extract(found).mapped();
  }
  bool flag(const std::string& key) {
    const auto found = values_.find(key);
    if (found == values_.end()) return false;
    if (!found->second.empty()) throw Mistake("error: '" + key + "' takes no value");
    values_.erase(found);
    return true;
  }
  std::int64_t number(const std::string& key, std::int64_t fallback) {
    constexpr std::int64_t most = 1'000'000;
    const std::string given = text(key);
    if (given.empty()) return fallback;
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), value);
    if (error != std::errc() || end != given.data() + given.size() || value < 1 || value > most)
      throw Mistake("error: '" + key + "' must be a whole number from 1 to " + std::to_string(most) + ", not '" +
                    given + "'");
    return value;
  }
  void expect_none_left() const {
    if (!values_.empty()) throw Mistake("error: unknown option '" + values_.begin()->first + "'; see --help");
  }

 private:
  std::map<std::string, std::string> values_;
};

void write_file(const std::string& path, const std::function<void(std::ostream&)>& write) {
  if (path.empty()) return;
  if (path == "-") return write(std::cout);
  std::ofstream file(path);
  write(file);
  file.close();
  if (!file) throw std::runtime_error(path + " cannot be written");
}

struct Common {
  explicit Common(Options& options)
      : plan_file(options.text("--plan")),
        timeline(options.text("--timeline")),
        ops(options.text("--ops")),
        steps(static_cast<int>(options.number("--steps", 1))),
        repeats(static_cast<int>(options.number("--repeat", 1))) {
    machine.swap_frees = options.flag("--swap-frees");
    kernels::set_threads(static_cast<int>(options.number("--threads", 1)));
    if (!plan_file.empty()) plan = read_plan(plan_file);
  }

  template <class Make, class Step>
  void run(const Make& make, const Step& step) {
    std::int64_t heap_before = 0, heap_in_steps = 0;
    const Measurement measured = measure(machine, steps, repeats, make, step, [&](bool begins) {
      if (begins)
        heap_before = heap_calls();
      else
        heap_in_steps = heap_calls() - heap_before;
    });
    write_file(timeline, [&](std::ostream& out) { measured.record.write_timeline(out); });
    write_file(ops, [&](std::ostream& out) { measured.record.write_ops(out); });
    if (timeline == "-" || ops == "-") return;
    std::cout << "high_water_bytes " << measured.high_water_bytes << "\nflops " << measured.record.flops()
              << "\nevents " << measured.record.events().size() << "\nheap_calls " << heap_in_steps << "\nrun_ns";
    for (const std::int64_t time : measured.run_times_ns) std::cout << ' ' << time;
    std::cout << "\nlast_step_ns";
    for (const std::int64_t time : measured.last_step_times_ns) std::cout << ' ' << time;
    std::cout << '\n';
  }

  Machine machine;
  std::string plan_file, timeline, ops;
  Plan plan;
  int steps, repeats;
};

void run_mlp(Options& options) {
  Common common(options);
  MlpShape shape;
  shape.layers = options.number("--layers", shape.layers);
  shape.rows = options.number("--rows", shape.rows);
  shape.width = options.number("--width", shape.width);
  shape.hidden = options.number("--hidden", shape.hidden);
  shape.save_pre_activation = options.flag("--save-pre-activation");
  const bool hold_out = options.flag("--hold-out");
  options.expect_none_left();
  const std::int64_t segment = common.plan.empty() ? 0 : segment_length(common.plan, shape.layers);
  common.run([&](Machine& machine) { return Mlp(machine, shape); },
             [&](Mlp& model, int number) { model.step(number, segment, hold_out); });
}

OptimizerKind optimizer_of(const std::string& name) {
  if (name.empty() || name == "adamw") return OptimizerKind::adamw;
  if (name == "adamw-fused") return OptimizerKind::adamw_fused;
  if (name == "none") return OptimizerKind::none;
  throw Mistake("error: unknown optimizer '" + name + "'; expected one of: adamw, adamw-fused, none");
}

void run_transformer(Options& options) {
  Common common(options);
  TransformerShape shape;
  for (const auto& [key, member] : std::initializer_list<std::pair<const char*, std::int64_t TransformerShape::*>>{
           {"--layers", &TransformerShape::layers},
           {"--hidden", &TransformerShape::hidden},
           {"--heads", &TransformerShape::heads},
           {"--ffn-hidden", &TransformerShape::ffn_hidden},
           {"--vocab", &TransformerShape::vocab},
           {"--positions", &TransformerShape::positions},
           {"--batch", &TransformerShape::batch},
           {"--sequence", &TransformerShape::sequence}})
    shape.*member = options.number(key, shape.*member);
  shape.tied_embeddings = !options.flag("--untied");
  const auto micro_batches = static_cast<int>(options.number("--accumulate", 1));
  const OptimizerKind optimizer = optimizer_of(options.text("--optimizer"));
  options.expect_none_left();
  if (shape.hidden % shape.heads != 0) throw Mistake("error: '--hidden' must be a multiple of '--heads'");
  if (shape.sequence > shape.positions) throw Mistake("error: '--sequence' is above '--positions'");
  common.run([&](Machine& machine) { return std::make_unique<Transformer>(machine, shape, common.plan, optimizer); },
             [&](std::unique_ptr<Transformer>& model, int number) {
               model->step(number, micro_batches, number + 1 == common.steps);
             });
}

int run(const std::vector<std::string>& words) {
  if (words.empty() || words[0] == "--help") {
    std::cout << help;
    return words.empty() ? 2 : 0;
  }
  Options options({words.begin() + 1, words.end()});
  if (words[0] == "mlp")
    run_mlp(options);
  else if (words[0] == "transformer")
    run_transformer(options);
  else
    throw Mistake("error: unknown model '" + words[0] + "'; expected mlp or transformer");
  std::cout.flush();
  if (!std::cout) throw std::runtime_error("standard output cannot be written");
  return 0;
}

}  // namespace
}  // namespace tidemark::native

int main(int argc, char** argv) {
  try {
    return tidemark::native::run({argv + 1, argv + argc});
  } catch (const tidemark::native::Mistake& mistake) {
    std::fprintf(stderr, "%s\n", mistake.what());
    return 2;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "error: this machine's memory is not enough for that\n");
    return 3;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 3;
  }
}
