#include "tidemark/plan/selection.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

struct Group {
  std::string_view name;
  std::vector<std::string_view> kinds;
};

const std::array<Group, 3>& groups() {
  static const std::array<Group, 3> all = {{{"matmul", {"linear", "matmul", "addmm", "bmm"}},
                                            {"norm", {"layer_norm", "rms_norm"}},
                                            {"activation", {"relu", "gelu", "silu", "tanh", "swiglu"}}}};
  return all;
}

/// `part` stands in `name` as whole components: "core" in "attention.core.softmax", not in "score".
bool has_components(std::string_view name, std::string_view part) {
  for (std::size_t at = name.find(part); at != std::string_view::npos; at = name.find(part, at + 1)) {
    const std::size_t end = at + part.size();
    if ((at == 0 || name[at - 1] == '.') && (end == name.size() || name[end] == '.')) return true;
  }
  return false;
}

void add_components(const std::string& name, std::set<std::string>& out) {
  std::size_t begin = 0;
  for (std::size_t end = 0; end != std::string::npos; begin = end + 1) {
    end = name.find('.', begin);
    out.insert(name.substr(begin, end == std::string::npos ? end : end - begin));
  }
}

std::string joined(const std::set<std::string>& names) {
  constexpr std::size_t most = 40;  // a graph may have a name a layer
  std::string out;
  std::size_t count = 0;
  for (const std::string& name : names) {
    if (count++ == most) return out + ", ...";
    out += (out.empty() ? "" : ", ") + name;
  }
  return out;
}

}  // namespace

bool matches(std::string_view pattern, const OutlineOp& op) {
  if (pattern.empty()) return false;
  if (pattern == op.kind || has_components(op.name, pattern)) return true;
  return std::ranges::any_of(groups(), [&](const Group& group) {
    return group.name == pattern && std::ranges::find(group.kinds, op.kind) != group.kinds.end();
  });
}

std::vector<bool> matching_ops(const std::vector<std::string>& patterns, const OutlineLayer& layer) {
  std::vector<bool> out;
  for (const OutlineOp& op : layer.ops)
    out.push_back(std::ranges::any_of(patterns, [&](const std::string& pattern) { return matches(pattern, op); }));
  return out;
}

bool is_view(const OutlineOp& op) { return op.kind == "view" || op.kind == "split"; }

void check_patterns(const std::vector<std::string>& patterns, const Outline& outline,
                    const std::vector<std::int32_t>& layers) {
  std::vector<bool> used(patterns.size(), false);
  std::set<std::string> kinds;
  std::set<std::string> names;
  for (const std::int32_t layer : layers)
    for (const OutlineOp& op : outline.layers[static_cast<std::size_t>(layer)].ops) {
      kinds.insert(op.kind);
      add_components(op.name, names);
      for (std::size_t i = 0; i < patterns.size(); ++i) used[i] = used[i] || matches(patterns[i], op);
    }
  const auto unused = std::ranges::find(used, false);
  if (unused == used.end()) return;
  throw InputError("'" + patterns[static_cast<std::size_t>(unused - used.begin())] +
                   "' matches no op of the blocks; expected a kind (" + joined(kinds) +
                   "), a group (matmul, norm, activation) or part of a name (" + joined(names) + ")");
}

}  // namespace tidemark
