#include "tidemark/input/expert_load.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include "tidemark/input/document.hpp"
#include "tidemark/input/quantities.hpp"

namespace tidemark {
namespace {

constexpr std::int64_t max_load_bytes = 64 << 20;
constexpr std::int64_t max_tokens = std::int64_t{1} << 48;
constexpr std::string_view columns = "layer,expert,tokens";

class LoadReader {
 public:
  LoadReader(std::string name, const TransformerSpec& spec)
      : name_(std::move(name)), spec_(spec), loads_(static_cast<std::size_t>(spec.layers)) {}

  std::vector<std::vector<std::int64_t>> read(std::string_view text) {
    check_text(text, name_);
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      ++line_;
      std::string_view row_text = text.substr(0, end);
      if (row_text.ends_with('\r')) row_text.remove_suffix(1);
      if (line_ > 1)
        row(row_text);
      else if (row_text != columns)
        fail(fmt::format("{} is not the header; expected {}", shown(row_text), columns));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (seen_.empty()) throw InputError({name_}, "no row; expected tokens of at least one expert");
    for (std::size_t layer = 0; layer < loads_.size(); ++layer) check(layer);
    return std::move(loads_);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const { throw InputError({name_, line_, 0}, message); }

  void row(std::string_view text) {
    std::array<std::int64_t, 3> cells = {};
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::size_t end = std::min(text.find(','), text.size());
      const auto number = parse_whole(text.substr(0, end));
      const bool last = i + 1 == cells.size();
      if (!number || *number > max_tokens || (end == text.size()) != last)
        fail(fmt::format("expected three whole numbers: {}", columns));
      cells[i] = *number;
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    const auto [layer, expert, tokens] = cells;
    if (layer >= spec_.layers || !has_experts(spec_, layer)) fail(fmt::format("layer {} has no experts", layer));
    if (expert >= spec_.experts.count)
      fail(fmt::format("no expert {}; a layer has experts 0 to {}", expert, spec_.experts.count - 1));
    if (!seen_.emplace(layer, expert).second) fail(fmt::format("expert {} of layer {} is named twice", expert, layer));
    std::vector<std::int64_t>& load = loads_[static_cast<std::size_t>(layer)];
    load.resize(static_cast<std::size_t>(spec_.experts.count));
    load[static_cast<std::size_t>(expert)] = tokens;
  }

  void check(std::size_t layer) const {
    const std::vector<std::int64_t>& load = loads_[layer];
    if (load.empty()) return;
    const Int128 sum = std::accumulate(load.begin(), load.end(), Int128{0});
    if (sum == 0) throw InputError({name_}, fmt::format("the experts of layer {} got no token", layer));
    const auto most = std::ranges::max_element(load);
    if (Int128{*most} * spec_.experts.per_token > sum)
      throw InputError({name_},
                       fmt::format("expert {} of layer {} got more than one token in {}: each goes to {} "
                                   "different experts",
                                   most - load.begin(), layer, spec_.experts.per_token, spec_.experts.per_token));
  }

  std::string name_;
  const TransformerSpec& spec_;
  int line_ = 0;
  std::set<std::pair<std::int64_t, std::int64_t>> seen_;
  std::vector<std::vector<std::int64_t>> loads_;
};

}  // namespace

std::vector<std::vector<std::int64_t>> read_expert_load(const std::string& path, const TransformerSpec& spec) {
  return LoadReader(path, spec).read(read_text(path, max_load_bytes, "tokens of experts (CSV)"));
}

}  // namespace tidemark
