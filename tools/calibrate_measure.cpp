#include "calibrate_measure.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>

#include "arena.hpp"
#include "kernels.hpp"
#include "tensor.hpp"

namespace tidemark::cli {
namespace {

namespace kernels = native::kernels;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t item = sizeof(float);

/// Inputs, filled once and only read, and outputs.
class Memory {
 public:
  explicit Memory(std::int64_t elements) {
    for (float*& block : inputs) block = filled(elements, 0.5F);
    for (float*& block : outputs) block = filled(elements, 0);
    mask = static_cast<std::uint8_t*>(arena_.take(elements));
    for (std::int64_t i = 0; i < elements; ++i) mask[i] = i % 3 == 0 ? 1 : 0;
  }
  float* inputs[4] = {};
  float* outputs[3] = {};
  std::uint8_t* mask = nullptr;

 private:
  float* filled(std::int64_t elements, float scale) {
    auto* block = static_cast<float*>(arena_.take(elements * item));
    std::uint32_t bits = 1;
    for (std::int64_t i = 0; i < elements; ++i) {
      bits = bits * 1664525U + 1013904223U;
      block[i] = scale * (static_cast<float>(bits >> 8) / static_cast<float>(1U << 24) + 0.1F);
    }
    return block;
  }
  native::Arena arena_;
};

struct Candidate {
  MeasuredOp op;
  std::function<void()> run;
  int batch = 1;  // runs between two looks at the clock
  std::vector<double> times;
};

struct Shape {
  std::int64_t m, n, k;
};

/// What is measured, by kind.
class Candidates {
 public:
  explicit Candidates(Memory& memory) : memory_(memory) {}

  std::vector<Candidate> all() {
    products({{4, 4, 4},
              {8, 8, 8},
              {16, 16, 16},
              {32, 32, 32},
              {48, 48, 48},
              {64, 64, 64},
              {128, 128, 128},
              {256, 256, 256},
              {384, 384, 384},
              {512, 512, 512},
              {256, 64, 32},
              {256, 32, 64},
              {512, 64, 64},
              {1024, 64, 128},
              {64, 256, 256},
              {8, 64, 64},
              {32, 512, 512},
              {128, 512, 128},
              {256, 1024, 256}},
             false);
    products({{24, 24, 24},
              {96, 96, 96},
              {192, 192, 192},
              {320, 320, 320},
              {192, 48, 96},
              {384, 96, 32},
              {100, 300, 50},
              {768, 64, 96},
              {64, 640, 160},
              {20, 200, 200}},
             true);
    // m: batch times heads, n: rows, k: head dimension
    batched({{4, 16, 16}, {8, 32, 16}, {8, 64, 32}, {16, 64, 64}, {8, 128, 32}, {8, 128, 64}, {4, 256, 64}}, false);
    batched({{6, 24, 16}, {12, 48, 32}, {8, 96, 64}, {6, 192, 48}}, true);
    // rows and columns
    rows({{1, 16}, {8, 32}, {32, 64}, {64, 128}, {128, 256}, {512, 256}, {1024, 512}, {2048, 1024}}, false);
    rows({{24, 48}, {100, 100}, {256, 192}, {700, 640}}, true);
    return std::move(all_);
  }

 private:
  struct Rows {
    std::int64_t rows, columns;
  };
  static std::string label(std::initializer_list<std::pair<const char*, std::int64_t>> extents) {
    std::string out;
    for (const auto& [name, extent] : extents)
      out += (out.empty() ? "" : " ") + std::string(name) + "=" + std::to_string(extent);
    return out;
  }

  void add(const char* kind, bool is_backward, std::string shape, std::int64_t flops, std::int64_t moved,
           std::function<void()> run) {
    Candidate made;
    made.op.kind = kind;
    made.op.is_backward = is_backward;
    made.op.shape = std::move(shape);
    made.op.flops = Flops{flops};
    made.op.moved = Bytes{moved};
    made.op.held_out = held_out_;
    made.run = std::move(run);
    all_.push_back(std::move(made));
  }

  void products(const std::vector<Shape>& shapes, bool held_out) {
    held_out_ = held_out;
    const float *x = memory_.inputs[0], *w = memory_.inputs[1], *g = memory_.inputs[2], *bias = memory_.inputs[3];
    float *out = memory_.outputs[0], *gx = memory_.outputs[0], *gw = memory_.outputs[1], *gb = memory_.outputs[2];
    for (const Shape& extents : shapes) {
      const std::int64_t m = extents.m, n = extents.n, k = extents.k;
      const std::string shape = label({{"m", m}, {"n", n}, {"k", k}});
      const std::int64_t flops = kernels::multiply_flops(m, n, k);
      const std::int64_t moved = item * (m * k + k * n + m * n);
      add("matmul", false, shape, flops, moved, [=] { kernels::multiply({x, k}, {w, n}, out, n, m, n, k); });
      add("matmul", true, shape, flops, moved, [=] { kernels::multiply({g, n}, {w, n, true}, gx, k, m, k, n); });
      add("matmul", true, shape, flops, moved, [=] { kernels::multiply({x, k, true}, {g, n}, gw, n, k, n, m); });
      add("linear", false, shape, flops, moved + item * n, [=] {
        kernels::multiply({x, k}, {w, k, true}, out, n, m, n, k);
        kernels::add_bias(out, bias, out, m, n);
      });
      add("linear", true, shape, 2 * flops, item * (m * n + 2 * m * k + 2 * k * n + n), [=] {
        kernels::multiply({g, n}, {w, k}, gx, k, m, k, n);
        kernels::multiply({g, n, true}, {x, k}, gw, k, n, k, m);
        kernels::sum_rows(g, gb, m, n);
      });
    }
  }

  /// Attention's two: scores = q kT, and scores v.
  void batched(const std::vector<Shape>& shapes, bool held_out) {
    held_out_ = held_out;
    const float *q = memory_.inputs[0], *k = memory_.inputs[1], *s = memory_.inputs[2], *g = memory_.inputs[3];
    float *out = memory_.outputs[0], *ga = memory_.outputs[0], *gb = memory_.outputs[1];
    for (const Shape& extents : shapes) {
      const std::int64_t batch = extents.m, n = extents.n, d = extents.k;
      const std::string shape = label({{"batch", batch}, {"rows", n}, {"d", d}});
      const std::int64_t flops = batch * kernels::multiply_flops(n, n, d);
      const std::int64_t moved = item * batch * (n * n + 2 * n * d);
      const auto each = [batch, n, d](const auto& one) {
        for (std::int64_t i = 0; i < batch; ++i) one(i * n * n, i * n * d);
      };
      add("bmm", false, shape, flops, moved, [=] {
        each([&](auto nn, auto nd) { kernels::multiply({q + nd, d}, {k + nd, d, true}, out + nn, n, n, n, d); });
      });
      add("bmm", false, shape, flops, moved, [=] {
        each([&](auto nn, auto nd) { kernels::multiply({s + nn, n}, {k + nd, d}, out + nd, d, n, d, n); });
      });
      add("bmm", true, shape, 2 * flops, item * batch * (n * n + 4 * n * d), [=] {
        each([&](auto nn, auto nd) {
          kernels::multiply({g + nn, n}, {k + nd, d}, ga + nd, d, n, d, n);
          kernels::multiply({g + nn, n, true}, {q + nd, d}, gb + nd, d, n, d, n);
        });
      });
      add("bmm", true, shape, 2 * flops, item * batch * (2 * n * n + 3 * n * d), [=] {
        each([&](auto nn, auto nd) {
          kernels::multiply({g + nd, d}, {k + nd, d, true}, ga + nn, n, n, n, d);
          kernels::multiply({s + nn, n, true}, {g + nd, d}, gb + nd, d, n, d, n);
        });
      });
    }
  }

  void rows(const std::vector<Rows>& shapes, bool held_out) {
    held_out_ = held_out;
    for (const Rows& shape : shapes) elementwise(shape);
  }

  void elementwise(const Rows& at) {
    const std::int64_t r = at.rows, c = at.columns, n = r * c;
    const std::string shape = label({{"rows", r}, {"columns", c}});
    const float *x = memory_.inputs[0], *y = memory_.inputs[1];
    float *out = memory_.outputs[0], *small = memory_.outputs[1];
    const std::uint8_t* mask = memory_.mask;
    auto* bytes_out = reinterpret_cast<std::uint8_t*>(memory_.outputs[1]);
    add("add", false, shape + " bias", 0, item * (2 * n + c), [=] { kernels::add_bias(x, y, out, r, c); });
    add("add", true, shape + " bias", 0, item * (n + c), [=] { kernels::sum_rows(x, small, r, c); });
    add("relu", false, shape, 0, 2 * item * n, [=] { kernels::relu(x, out, n); });
    add("relu", true, shape, 0, (item + 1) * n, [=] { kernels::is_positive(x, bytes_out, n); });
    add("relu", true, shape, 0, (2 * item + 1) * n, [=] { kernels::multiply_mask(x, mask, out, n); });
  }

  Memory& memory_;
  bool held_out_ = false;
  std::vector<Candidate> all_;
};

/// As a native step runs an op: it is written down, and a block comes from the warm arena and goes back.
double run_once(native::Machine& machine, const Candidate& candidate) {
  machine.record.clear();
  const auto start = Clock::now();
  for (int i = 0; i < candidate.batch; ++i) {
    machine.begin_op({"calibrate", "op"}, "calibrate", native::Phase::forward);
    const native::Tensor block = machine.allocate({"calibrate", "out"}, {16});
    candidate.run();
    machine.record.touch_op();
  }
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count() / candidate.batch;
}

/// Batches of at least 20 us, so that the clock costs nothing.
void choose_batch(native::Machine& machine, Candidate& candidate) {
  constexpr double enough_ns = 20'000;
  double fastest = 1e18;
  for (int i = 0; i < 3; ++i) fastest = std::min(fastest, run_once(machine, candidate));
  candidate.batch = std::clamp(static_cast<int>(std::ceil(enough_ns / std::max(fastest, 1.0))), 1, 10'000);
}

Nanos quantile(const std::vector<double>& sorted, double part) {
  return Nanos{std::max<std::int64_t>(
      1, std::llround(sorted[static_cast<std::size_t>(part * static_cast<double>(sorted.size() - 1))]))};
}

}  // namespace

std::vector<MeasuredOp> measure_ops(const MeasureOptions& options) {
  kernels::set_threads(1);
  constexpr std::int64_t most_elements = std::int64_t{2048} * 1024;
  Memory memory(most_elements);
  native::Machine machine;
  std::vector<Candidate> candidates = Candidates(memory).all();
  for (Candidate& candidate : candidates) choose_batch(machine, candidate);
  constexpr int rounds = 60, quick_rounds = 15;
  const int all = options.quick ? quick_rounds : rounds;
  for (int round = 0; round < all; ++round) {
    for (Candidate& candidate : candidates) candidate.times.push_back(run_once(machine, candidate));
    if (options.progress) options.progress(round + 1, all);
  }
  std::vector<MeasuredOp> out;
  for (Candidate& candidate : candidates) {
    std::ranges::sort(candidate.times);
    constexpr double low = 0.1, middle = 0.5;
    candidate.op.time = quantile(candidate.times, low);
    candidate.op.median = quantile(candidate.times, middle);
    out.push_back(candidate.op);
  }
  return out;
}

}  // namespace tidemark::cli
