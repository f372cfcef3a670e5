/// How does a native program remember what it did: for backward, and to run again what it gave up?
///
/// The model's code is C++ functions on Values; an op's operands are let go when its kernel has run, so a Value that is
/// moved into its last reader dies there. An op's Node outlives the step. When it runs it keeps what its backward
/// reads. When the plan drops it, it keeps instead those operands that it cannot get again, runs once more where the
/// plan says, and hands its result to the ops that wait for it.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "tensor.hpp"

namespace tidemark::native {

class Node;

/// A tensor with a gradient of its own. Gradients that reach it meet first; the sum is kept, or added to what is there.
struct Parameter {
  Tensor value, gradient;
  Tensor moments[2];
  Tensor arriving;
  int readers = 0;        // ops that read it
  int still_to_come = 0;  // of their gradients, in this backward
};

/// Where the gradient of an operand goes.
struct Edge {
  Node* node = nullptr;  // to output `output` of this op,
  int output = 0;
  Parameter* parameter = nullptr;  // or to this parameter; neither: nobody wants it
  bool wants_gradient() const { return node != nullptr || parameter != nullptr; }
};

/// What flows through the model's code.
struct Value {
  Tensor tensor;
  Edge edge;
};

/// What one kind of op computes.
struct Rule {
  void (*forward)(Node&);
  void (*backward)(Node&);
  bool is_view = false;     // makes nothing: what happens in it belongs to the op before
  bool last_first = false;  // the last operand's gradient is handed on first
};

/// Numbers an op is made with.
struct OpSettings {
  float factor = 1;                           // scale
  Dims shape = {};                            // reshape
  std::array<std::size_t, 2> swap{};          // transpose
  std::array<std::string_view, 3> outputs{};  // names, where they are not the op's own
};

/// What all ops of a step share.
struct Context {
  explicit Context(Machine& the_machine) : machine(the_machine) {}
  Machine& machine;
  Phase phase = Phase::forward;
};

class Node {
 public:
  static constexpr int most = 3;  // operands, outputs

  Node(Context& context, std::string_view layer, std::string_view part, const Rule& rule, OpSettings settings = {})
      : context_(context), name_{layer, part}, rule_(rule), settings_(settings) {}
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  /// Operands that are always there: a parameter, a batch input. Positions count from the first operand.
  Node& reads(int position, Parameter& parameter);
  Node& reads(int position, const Tensor& input);

  /// Runs it on the operands that flow to it.
  Value operator()(Value a) { return std::move(call({&a})[0]); }
  Value operator()(Value a, Value b) { return std::move(call({&a, &b})[0]); }
  std::array<Value, most> split(Value a) { return call({&a}); }
  /// Without any: all its operands are always there.
  Value operator()() { return std::move(call({})[0]); }

  std::string_view part() const { return name_.part; }
  void run_again();
  void run_backward();
  /// Lets go of what it keeps: no backward follows.
  void forget();
  /// A gradient of its output has come.
  void receive(int output, Tensor gradient);

  // ---- what the plan says
  static constexpr int never = -1;
  bool is_dropped = false;    // forward keeps nothing for backward
  int runs_again_at = never;  // position in the plan
  int runs_backward_at = never;

  // ---- for rules: forward
  const Tensor& operand(int i) const;
  const Dims& operand_shape(int i) const { return operands_[index(i)].shape; }
  int operands() const { return operand_count_; }
  const OpSettings& settings() const { return settings_; }
  Tensor& make_output(Dims shape);
  Tensor& make_buffer(int i, std::string_view name, Dims shape);
  /// A result that is the first operand's memory seen otherwise.
  void make_view(int output, Dims shape, Dims strides, std::int64_t offset = 0);
  void keep_operand(int i) { keep(Kept::Of::operand, i); }
  void keep_output() { keep(Kept::Of::output, 0); }
  void keep_buffer(int i) { keep(Kept::Of::buffer, i); }
  void count_flops(std::int64_t flops) { context_.machine.record.count_flops(flops); }

  // ---- for rules: backward
  /// Opens the op; a rule whose backward runs no kernel does not.
  void begin_backward();
  const Tensor& incoming(int output = 0) const { return incoming_[index(output)]; }
  const Tensor& kept_operand(int i) const { return kept(Kept::Of::operand, i); }
  const Tensor& kept_output() const { return kept(Kept::Of::output, 0); }
  const Tensor& kept_buffer(int i) const { return kept(Kept::Of::buffer, i); }
  bool wants_gradient(int i) const { return operands_[index(i)].edge.wants_gradient(); }
  Tensor& make_gradient(int i);
  /// The incoming gradient itself, or a view of it.
  void hand_on(int i, Tensor gradient) { gradients_[index(i)] = std::move(gradient); }
  /// A row-major copy of it under the operand's name.
  Tensor copied(const Tensor& gradient, int i);
  static void copy_into(const Tensor& from, const Tensor& to);

 private:
  struct Kept {
    enum class Of : std::uint8_t { operand, output, buffer } of = Of::operand;
    int index = 0;
    Tensor tensor;  // empty: an operand that is always there, or that a cached op looks up when backward runs
  };
  struct Operand {
    Name name;
    Dims shape;
    Edge edge;
    const Tensor* always = nullptr;  // a parameter or a batch input
    Tensor held;                     // while the op runs; past that only while the op has to wait with it
  };
  struct Reader {
    Node* node = nullptr;
    int operand = 0;
  };

  struct Output {
    Name name;
    Dims shape;
    std::int64_t bytes = 0;
    std::array<Reader, 3> readers;
  };

  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  bool runs_again() const { return runs_again_at != never; }
  /// Its result stays, what it saved of its operands is looked up when its backward runs.
  bool is_cached() const { return is_dropped && !runs_again(); }
  std::array<Value, most> call(std::initializer_list<Value*> values);
  void take_operand(int position, Value& value);
  void run_kernel(Phase phase, bool saves);
  bool will_get_from(const Node& producer) const;
  bool holds_on_to(int position) const;
  void let_go_operands(bool all);
  bool keeps_operand(int position) const;
  void keep(Kept::Of of, int i);
  const Tensor& kept(Kept::Of of, int i) const;
  void set_output(int i, Tensor tensor);
  void deliver_gradients();

  Context& context_;
  Name name_;
  Rule rule_;
  OpSettings settings_;
  std::array<Operand, most> operands_;
  int operand_count_ = 0;
  std::array<Output, most> outputs_;
  std::array<Tensor, most> results_;  // of the run at hand
  std::array<Tensor, 2> buffers_;
  std::array<Kept, 5> kept_;
  int kept_count_ = 0;
  bool saves_ = false;  // in the run at hand
  bool backward_runs_ = false;
  std::array<Tensor, most> incoming_, gradients_;
};

}  // namespace tidemark::native
