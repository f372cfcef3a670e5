#include "program_text.hpp"

#include <algorithm>
#include <vector>

#include "tidemark/program/shapes.hpp"

namespace tidemark::test {
namespace {

class Writer {
 public:
  explicit Writer(const Program& program) : program_(program), last_(program.tensors.size(), -1) {
    for (std::size_t k = 0; k < program.ops.size(); ++k) {
      for (const TensorId t : program.ops[k].inputs) last_[index(t)] = static_cast<OpIndex>(k);
      for (const TensorId t : program.ops[k].outputs) last_[index(t)] = static_cast<OpIndex>(k);
    }
  }

  std::string text() const {
    std::string out = "model:\n  family: program\n";
    out += leaves("parameters", program_.parameters) + leaves("inputs", program_.inputs) + "  layers:\n";
    std::int32_t layer = -1;
    for (std::size_t k = 0; k < program_.ops.size(); ++k) {
      const ProgramOp& op = program_.ops[k];
      if (op.layer != layer) {
        layer = op.layer;
        const Layer& of = program_.layers[index(layer)];
        out += "    - name: \"" + of.name + "\"\n      block: " + (of.is_block ? "true" : "false") + "\n      ops:\n";
      }
      out += op_line(op) + release_line(k);
    }
    out += "  loss: " + name(program_.loss) + "\n";
    if (program_.loss_gradient >= 0) out += "  loss_gradient: " + name(program_.loss_gradient) + "\n";
    return out;
  }

 private:
  static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }
  const Tensor& tensor(TensorId t) const { return program_.tensors[index(t)]; }
  static std::string name(TensorId t) { return "t" + std::to_string(t); }
  static std::string list(const std::vector<TensorId>& tensors) {
    std::string out;
    for (const TensorId t : tensors) out += (out.empty() ? "" : ", ") + name(t);
    return "[" + out + "]";
  }

  std::string leaves(const std::string& key, const std::vector<TensorId>& tensors) const {
    if (tensors.empty()) return "";
    std::string out = "  " + key + ":\n";
    for (const TensorId t : tensors) {
      const Tensor& leaf = tensor(t);
      out += "    " + name(t) + ": {shape: " + to_string(leaf.shape) +
             ", dtype: " + std::string(to_string(leaf.dtype)) +
             ", requires_grad: " + (leaf.requires_grad ? "true" : "false") + "}\n";
    }
    return out;
  }

  std::string op_line(const ProgramOp& op) const {
    const std::string layer = program_.layers[index(op.layer)].name + ".";
    const std::string within = op.name.starts_with(layer) ? op.name.substr(layer.size()) : op.name;
    std::string out =
        "        - {op: " + kind(op) + ", name: " + within + ", in: " + list(op.inputs) + ", out: " + list(op.outputs);
    if (op.attributes.in_place) out += ", in_place: true";
    if (op.attributes.causal) out += ", causal: true";
    if (op.attributes.probability > 0) out += ", probability: " + decimal(op.attributes.probability);
    return out + view_keys(op) + "}\n";
  }

  static std::string decimal(double value) {
    std::string out = std::to_string(value);
    return out.substr(0, out.find_last_not_of('0') + 1);
  }

  std::string kind(const ProgramOp& op) const {
    if (op.kind != OpKind::view) return std::string(to_string(op.kind));
    if (!op.attributes.dims.empty()) return "transpose";
    if (op.attributes.implementation.empty()) return "reshape";
    return tensor(op.inputs[0]).shape.size() > tensor(op.outputs[0]).shape.size() ? "select" : "slice";
  }

  std::string view_keys(const ProgramOp& op) const {
    const Shape& from = tensor(op.inputs[0]).shape;
    const Shape& to = tensor(op.outputs[0]).shape;
    if (op.kind == OpKind::split) {
      std::string sizes;
      for (const TensorId t : op.outputs) sizes += (sizes.empty() ? "" : ", ") + std::to_string(tensor(t).shape.back());
      return ", dims: -1, sizes: [" + sizes + "]";
    }
    if (op.kind != OpKind::view) return "";
    if (kind(op) == "transpose") return ", dims: " + to_string(op.attributes.dims);
    if (kind(op) == "reshape") return ", shape: " + to_string(to);
    std::size_t d = 0;
    while (d < to.size() && to[d] == from[d]) ++d;
    if (kind(op) == "select") return ", dims: " + std::to_string(d) + ", sizes: 0";
    if (d == to.size()) d = 0;
    return ", dims: " + std::to_string(d) + ", sizes: [0, " + std::to_string(to[d]) + "]";
  }

  /// Expression temporaries let go by themselves; names have to be told.
  std::string release_line(std::size_t k) const {
    const std::vector<TensorId>& releases = program_.ops[k].releases;
    std::size_t first = 0;
    while (first < releases.size() && last_[index(releases[first])] == static_cast<OpIndex>(k) &&
           (first == 0 || releases[first - 1] < releases[first]))
      ++first;
    if (first == releases.size()) return "";
    return "        - {release: " + list({releases.begin() + static_cast<std::ptrdiff_t>(first), releases.end()}) +
           "}\n";
  }

  const Program& program_;
  std::vector<OpIndex> last_;  // by tensor: its last reader
};

}  // namespace

std::string program_text(const Program& program) { return Writer(program).text(); }

}  // namespace tidemark::test
