// Do single ops allocate and free what PyTorch's do, forward and backward?
#include <doctest/doctest.h>

#include <map>
#include <string>

#include "support/csv.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/study/pipeline.hpp"

using namespace tidemark;
using test::Row;

namespace {

/// Leaves by name (a dtype after the shape: no gradient), then ops; the last result, or `outs`, is what is measured.
struct Probe {
  std::string name;    // in the table
  std::string leaves;  // "x 7,13; m 7,13 bool"
  std::string ops;     // "relu x y; mm x w z" or whole entries
  std::string outs = "y";
};

const Probe probes[] = {
    {"mm: x[7;11] @ w[11;13]", "x 7,11; w 11,13", "matmul x,w y"},
    {"mm; x constant", "x 7,11 float32; w 11,13", "matmul x,w y"},
    {"add bias: x[7;13] + b[13]", "x 7,13; b 13", "add x,b y"},
    {"add same shape: x + y", "x 7,13; w 7,13", "add x,w y"},
    {"addmm(b; x; w)", "b 13; x 7,11; w 11,13", "addmm b,x,w y"},
    {"F.linear(x; W[13;11]; b) 2-D", "x 7,11; w 13,11; b 13", "linear x,w,b y"},
    {"bmm/matmul 4-D q @ k^T", "q 6,5,11; t 6,11,5", "bmm q,t y"},
    {"relu", "x 7,13", "relu x y"},
    {"gelu", "x 7,13", "gelu x y"},
    {"gelu tanh", "x 7,13", "gelu x y"},
    {"silu", "x 7,13", "silu x y"},
    {"tanh", "x 7,13", "tanh x y"},
    {"sigmoid", "x 7,13", "sigmoid x y"},
    {"exp", "x 7,13", "exp x y"},
    {"rsqrt", "x 7,13", "rsqrt x y"},
    {"neg", "x 7,13", "neg x y"},
    {"square pow(2)", "x 7,13", "pow x y"},
    {"pow 3", "x 7,13", "pow x y"},
    {"mul scalar", "x 7,13", "scale x y"},
    {"div scalar", "x 7,13", "scale x y"},
    {"abs", "x 7,13", "abs x y"},
    {"leaky_relu", "x 7,13", "leaky_relu x y"},
    {"clamp", "x 7,13", "clamp x y"},
    {"clamp min", "x 7,13", "clamp x y bounds: one"},
    {"relu_ in place (on mm output)", "x 7,11; w 11,13", "matmul x,w h; relu h y in_place: true"},
    {"mul x*y", "x 7,13; w 7,13", "mul x,w y"},
    {"mul x*g broadcast [13]", "x 7,13; w 13", "mul x,w y"},
    {"mul rows [7;1]", "x 7,13; w 7,1", "mul x,w y"},
    {"mul const rows", "x 7,13; c 7,1 float32", "mul x,c y"},
    {"mul const full", "x 7,13; c 7,13 float32", "mul x,c y"},
    {"div x/y", "x 7,13; w 7,13", "div x,w y"},
    {"div rows [7;1]", "x 7,13; w 7,1", "div x,w y"},
    {"div const", "x 7,13; c 7,13 float32", "div x,c y"},
    {"sub", "x 7,13; w 7,13", "sub x,w y"},
    {"sub bias", "x 7,13; w 13", "sub x,w y"},
    {"rsub scalar", "x 7,13", "sub_from x y"},
    {"add scalar", "x 7,13", "add_scalar x y"},
    {"sub scalar", "x 7,13", "add_scalar x y"},
    {"dropout p=.5", "x 7,13", "dropout x y probability: 0.5"},
    {"softmax", "x 7,13", "softmax x y"},
    {"log_softmax", "x 7,13", "log_softmax x y"},
    {"masked_fill (bool mask)", "x 7,13; m 7,13 bool", "masked_fill x,m y"},
    {"masked_fill 3d bcast", "x 3,5,5; m 5,5 bool", "masked_fill x,m y"},
    {"layer_norm affine", "x 7,13; w 13; b 13", "layer_norm x,w,b y"},
    {"layer_norm 3d", "x 3,5,11; w 11; b 11", "layer_norm x,w,b y"},
    {"layer_norm plain", "x 7,13", "layer_norm x y"},
    {"group_norm", "x 7,4,3,3; w 4; b 4", "group_norm x,w,b y groups: 2"},
    {"batch_norm train 2-D", "x 7,13; w 13; b 13; m 13 float32; v 13 float32", "batch_norm x,w,b,m,v y"},
    {"batch_norm train 4-D", "x 7,3,5,5; w 3; b 3; m 3 float32; v 3 float32", "batch_norm x,w,b,m,v y"},
    {"max_pool2d 2", "x 2,3,8,8", "max_pool x y,i shape: [2, 3, 4, 4]"},
    {"avg_pool2d 2", "x 2,3,8,8", "avg_pool x y shape: [2, 3, 4, 4]"},
    {"embedding", "w 17,11; i 3,5 int64", "embedding i,w y"},
    {"cat dim1", "x 7,11; w 7,13", "cat x,w y dims: 1"},
    {"stack", "x 7,11; w 7,11", "stack x,w y"},
    {"stack dim1", "x 7,13; w 7,13", "stack x,w y dims: 1"},
    {"split then all used (qkv split)", "x 7,39",
     "split x a,b,c dims: 1, sizes: [13, 13, 13]; scale a p; scale b q; scale c r", "p,q,r"},
    {"split; a part unread", "x 7,39", "split x a,b,c dims: 1, sizes: [13, 13, 13]; scale a p; scale c r", "p,r"},
    {"unbind; a part unread", "x 3,7,13", "unbind x a,b,c dims: 0; scale a p; scale c r", "p,r"},
    {"layer_norm; gradient transposed", "x 3,5,11; w 11; b 11", "layer_norm x,w,b h; transpose h y dims: [1, 2]"},
    {"layer_norm and tanh; gradient transposed", "x 3,5,11; w 11; b 11",
     "layer_norm x,w,b h; tanh h t; transpose t y dims: [1, 2]"},
    {"layer_norm and relu; gradient transposed", "x 3,5,11; w 11; b 11",
     "layer_norm x,w,b h; relu h t; transpose t y dims: [1, 2]"},
    {"embedding; gradient permuted", "w 17,11; i 3,5 int64", "embedding i,w h; permute h y dims: [2, 0, 1]"},
    {"slice x[:; :5]", "x 7,13", "slice x a dims: 0, sizes: [0, 7]; slice a b dims: 1, sizes: [0, 5]; scale b y"},
    {"select x[:; 0]", "x 7,5,13", "slice x a dims: 0, sizes: [0, 7]; select a b dims: 1, sizes: 0; scale b y"},
    {"index x[tok]", "x 7,13; i 3 int64", "index x,i y shape: [3, 13]"},
    {"index two", "x 7,13; i 3 int64; j 3 int64", "index x,i,j y shape: 3"},
    {"index_select", "x 7,13; i 3 int64", "index x,i y shape: [3, 13]"},
    {"index_add(0; tok; u)", "x 7,13; u 3,13; i 3 int64", "index_add x,i,u y"},
    {"gather dim1", "x 7,13; i 7,2 int64", "gather x,i y shape: [7, 2]"},
    {"topk values", "x 7,13", "top_k x y,i shape: [7, 3]"},
    {"view", "x 7,13", "reshape x y shape: [13, 7]"},
    {"transpose", "x 7,13", "transpose x y dims: [0, 1]"},
    {"transpose+contiguous", "x 7,13", "transpose x t dims: [0, 1]; contiguous t y"},
    {"permute contiguous", "x 3,5,11", "permute x t dims: [2, 0, 1]; contiguous t y"},
    {"unsqueeze", "x 7,13", "reshape x y shape: [1, 7, 13]"},
    {"expand [1;13]->[7;13] then *1", "x 1,13", "expand x e shape: [7, 13]; scale e y"},
    {"sum()", "x 7,13", "sum x y"},
    {"sum(0)", "x 7,13", "sum x y dims: 0, shape: 13"},
    {"sum 1 keep", "x 7,13", "sum x y dims: 1"},
    {"mean(-1; keepdim)", "x 7,13", "mean x y"},
    {"mean all", "x 7,13", "mean x y shape: []"},
    {"mean 0", "x 7,13", "mean x y dims: 0, shape: 13"},
    {"mse_loss (target constant)", "x 7,13; t 7,13 float32", "mse_loss x,t y"},
    {"cross_entropy", "x 7,17; t 7 int64", "log_softmax x h; nll_loss h,t y"},
    {"bce_with_logits", "x 7,13; t 7,13 float32", "bce_loss x,t y"},
    {"x used twice: relu(x)+tanh(x)", "x 7,13", "relu x a; tanh x b; add a,b y"},
    {"residual: x + x@w", "x 7,13; w 13,13", "matmul x,w h; add x,h y"},
    {"square mul x*x", "x 7,13", "mul x,x y"},
    {"clone", "x 7,13", "contiguous x y"},
    {"to(bfloat16)", "x 7,13", "cast x y dtype: bfloat16"},
    {"swiglu silu(a)*b", "a 7,13; b 7,13", "silu a h; mul h,b y"},
    {"log", "x 7,13", "log x y"},
    {"sqrt", "x 7,13", "sqrt x y"},
    {"sin", "x 7,13", "sin x y"},
    {"cos", "x 7,13", "cos x y"},
    {"erf", "x 7,13", "erf x y"},
    {"reciprocal", "x 7,13", "reciprocal x y"},
    {"elu", "x 7,13", "elu x y"},
    {"softplus", "x 7,13", "softplus x y"},
    {"hardtanh", "x 7,13", "hardtanh x y"},
    {"relu6", "x 7,13", "hardtanh x y"},
    {"hardswish", "x 7,13", "hardswish x y"},
    {"tril", "x 7,13", "triangle x y"},
    {"where", "x 7,13; w 7,13; m 7,13 bool", "where m,x,w y"},
};

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(' ');
  return first == std::string::npos ? "" : text.substr(first);
}

/// A leaf reaches the op as a view: what arrives at it is kept and nothing is cloned.
std::string program_text(const Probe& probe) {
  std::string parameters, inputs, ops;
  for (const std::string& written : test::split(probe.leaves, ';')) {
    const std::vector<std::string> words = test::split(trimmed(written), ' ');
    const bool constant = words.size() > 2;
    std::string& where = constant ? inputs : parameters;
    const std::string name = constant ? words[0] : "leaf_" + words[0];
    where += "    " + name + ": {shape: [" + words[1] + "], dtype: " + (constant ? words[2] : "float32") + "}\n";
    if (!constant) ops += "        - {op: reshape, in: leaf_" + words[0] + ", out: " + words[0] + "}\n";
  }
  for (const std::string& written : test::split(probe.ops, ';')) {
    const std::string op = trimmed(written);
    const std::vector<std::string> words = test::split(op, ' ');
    std::string rest;
    for (std::size_t i = 3; i < words.size(); ++i) rest += " " + words[i];
    ops += "        - {op: " + words[0] + ", in: [" + words[1] + "], out: [" + words[2] + "]" +
           (rest.empty() ? "" : "," + rest) + "}\n";
  }
  return "model:\n  family: program\n" + (parameters.empty() ? "" : "  parameters:\n" + parameters) +
         (inputs.empty() ? "" : "  inputs:\n" + inputs) + "  layers:\n    - name: op\n      ops:\n" + ops +
         "    - name: loss\n      ops:\n        - {op: custom, in: [" + probe.outs +
         "], out: end, shape: [1000, 1000], forward_flops: 0 FLOP}\n  loss: end\n";
}

struct Streams {
  std::string forward, backward;
};

/// What stands before the loss, and what stands after its gradients.
Streams streams(const Step& step) {
  Streams out;
  std::string* part = &out.forward;
  for (const Instruction& i : step.instructions) {
    if (i.what != Do::alloc && i.what != Do::free) continue;
    const StepStorage& storage = step.storages[i.index];
    const std::string name = step.names[step.ops[i.op].name];
    if (name == "loss.end" || name == "loss.gradient") {
      part = nullptr;
      continue;
    }
    if (name.rfind("loss", 0) == 0) continue;
    if (part == nullptr) part = &out.backward;
    if (step.names[storage.name].rfind("loss.end", 0) == 0) continue;
    if (!part->empty()) *part += ' ';
    *part += (i.what == Do::alloc ? "+" : "-") + to_string(storage.bytes).substr(0, to_string(storage.bytes).find(' '));
  }
  return out;
}

}  // namespace

TEST_CASE("single PyTorch ops: every allocation and free, forward and backward") {
  std::map<std::string, Row> table;
  for (const Row& row : test::table("tests/oracle/data/torch_ops.csv"))
    table[row.at("version") + " " + row.at("op")] = row;
  for (const std::string version : {"1.13", "2.6"})
    for (const Probe& probe : probes) {
      const std::string name = version + " " + probe.name;
      CAPTURE(name);
      REQUIRE(table.contains(name));
      const Scenario scenario = parse_scenario("profile: pytorch-" + version + "-cpu\n" + program_text(probe), "probe");
      const Streams got = streams(run(scenario).step);
      CHECK(got.forward == table.at(name).at("forward"));
      CHECK(got.backward == table.at(name).at("backward"));
    }
}
