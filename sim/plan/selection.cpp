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

const std::array<Group, 4>& groups() {
  static const std::array<Group, 4> all = {{{"matmul", {"linear", "matmul", "addmm", "bmm", "grouped_linear"}},
                                            {"mm", {"matmul"}},
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

namespace {

std::string_view without_count(std::string_view pattern) { return pattern.substr(0, pattern.find('/')); }

/// A whole number of at most six digits, or -1.
int small_number(std::string_view text) {
  const bool digits =
      !text.empty() && text.size() <= 6 && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  return digits ? std::stoi(std::string(text)) : -1;
}

}  // namespace

Selection::Selection(const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    Counted& counted = patterns_.emplace_back(Counted{std::string(without_count(pattern))});
    if (counted.pattern.size() == pattern.size()) continue;
    const std::string count = pattern.substr(counted.pattern.size() + 1);
    const std::size_t plus = count.find('+');
    counted.every = small_number(count.substr(0, plus));
    if (plus != std::string::npos) counted.from = small_number(count.substr(plus + 1));
    if (counted.every < 1 || counted.from < 0 || counted.from >= counted.every)
      throw InputError(
          "'" + pattern +
          "' is no pattern; expected what every n-th of is meant, such as mm/2, or mm/2+1 from the first on");
  }
}

bool Selection::next(const OutlineOp& op) {
  bool meant = false;
  for (Counted& counted : patterns_)
    if (matches(counted.pattern, op)) meant = ++counted.seen % counted.every == counted.from || meant;
  return meant;
}

std::vector<bool> matching_ops(const std::vector<std::string>& patterns, const OutlineLayer& layer) {
  Selection selection(patterns);
  std::vector<bool> out;
  for (const OutlineOp& op : layer.ops) out.push_back(selection.next(op));
  return out;
}

bool is_view(const OutlineOp& op) { return op.kind == "view" || op.kind == "split"; }

void check_patterns(const std::vector<std::string>& patterns, const Outline& outline,
                    const std::vector<std::int32_t>& layers) {
  const auto ops_of = [&](std::int32_t layer) -> const std::vector<OutlineOp>& {
    return outline.layers[static_cast<std::size_t>(layer)].ops;
  };
  const auto unused = std::ranges::find_if(patterns, [&](const std::string& pattern) {
    return std::ranges::none_of(layers, [&](std::int32_t layer) {
      return std::ranges::any_of(ops_of(layer),
                                 [&](const OutlineOp& op) { return matches(without_count(pattern), op); });
    });
  });
  if (unused == patterns.end()) return;
  const std::string& pattern = *unused;
  std::set<std::string> kinds, names;
  for (const std::int32_t layer : layers)
    for (const OutlineOp& op : ops_of(layer)) {
      kinds.insert(op.kind);
      add_components(op.name, names);
    }
  std::vector<std::string> known(kinds.begin(), kinds.end());
  known.insert(known.end(), names.begin(), names.end());
  for (const Group& group : groups()) known.emplace_back(group.name);
  const std::string near = nearest_name(without_count(pattern), known);
  const std::string hint = near.empty() ? "" : "did you mean '" + near + "'? ";
  throw InputError("'" + pattern + "' matches no op of the blocks; " + hint + "expected a kind (" + joined(kinds) +
                   "), a group (matmul, norm, activation) or part of a name (" + joined(names) + ")");
}

}  // namespace tidemark
