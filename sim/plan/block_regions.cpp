#include "tidemark/plan/block_regions.hpp"

#include <algorithm>
#include <string>

#include "tidemark/base/errors.hpp"
#include "tidemark/formula/formula.hpp"

namespace tidemark {
namespace {

using Regions = std::optional<std::vector<BlockRegion>>;

std::string layers(std::size_t n) { return std::to_string(n) + (n == 1 ? " layer" : " layers"); }

/// Throws unless a count in a policy is positive.
std::size_t counted(const char* key, int value) {
  if (value < 1) throw InputError("'" + std::string(key) + "' must be at least 1, not " + std::to_string(value));
  return static_cast<std::size_t>(value);
}

class Finder {
 public:
  explicit Finder(std::size_t blocks) : blocks_(blocks) {}

  Regions operator()(const policy::None&) const { return std::vector<BlockRegion>{}; }
  Regions operator()(const policy::Full&) const { return segments(1, true); }
  Regions operator()(const policy::Interval& p) const {
    return segments(counted("interval", p.interval), p.checkpoint_last);
  }
  Regions operator()(const policy::Sqrt& p) const {
    const auto interval = optimal_segment(static_cast<std::int64_t>(blocks_));
    return segments(static_cast<std::size_t>(std::max<std::int64_t>(interval, 1)), p.checkpoint_last);
  }
  Regions operator()(const policy::Sequential& p) const {
    const std::size_t count = counted("segments", p.segments);
    if (count > blocks_)
      throw InputError("'segments' must be at most the model's " + layers(blocks_) + ", not " + std::to_string(count));
    const std::size_t size = blocks_ / count;
    std::vector<BlockRegion> out;
    for (std::size_t k = 0; k + 1 < count; ++k) out.push_back({k * size, size});
    return out;
  }
  Regions operator()(const policy::Block& p) const {
    if (p.layers < 0 || static_cast<std::size_t>(p.layers) > blocks_)
      throw InputError("'layers' must be from 0 to the model's " + layers(blocks_) + ", not " +
                       std::to_string(p.layers));
    std::vector<BlockRegion> out;
    for (std::size_t i = 0; i < static_cast<std::size_t>(p.layers); ++i) out.push_back({i, 1});
    return out;
  }
  Regions operator()(const policy::Whole&) const {
    return blocks_ == 0 ? std::vector<BlockRegion>{} : std::vector<BlockRegion>{{0, blocks_}};
  }
  Regions operator()(const policy::Selective& p) const;
  Regions operator()(const policy::Rule&) const { return std::nullopt; }
  Regions operator()(const policy::Sequence&) const { return std::nullopt; }
  Regions operator()(const policy::Given&) const { return std::nullopt; }

 private:
  Regions segments(std::size_t interval, bool checkpoint_last) const {
    std::vector<BlockRegion> out;
    for (std::size_t first = 0; first < blocks_; first += interval) {
      const std::size_t end = std::min(first + interval, blocks_);
      if (end < blocks_ || checkpoint_last) out.push_back({first, end - first});
    }
    return out;
  }
  const std::size_t blocks_;
};

/// A region is of neighbours; a gap in the selection ends it.
Regions Finder::operator()(const policy::Selective& p) const {
  const std::size_t every = counted("every", p.every), interval = counted("interval", p.interval);
  const std::vector<bool> chosen = blocks_in(p.layers, blocks_);
  std::vector<BlockRegion> out;
  std::size_t seen = 0;
  for (std::size_t i = 0; i < blocks_; ++i) {
    if (!chosen[i] || ++seen % every != 0) continue;
    const bool goes_on = !out.empty() && out.back().first + out.back().count == i && out.back().count < interval;
    if (goes_on)
      ++out.back().count;
    else
      out.push_back({i, 1});
  }
  return out;
}

}  // namespace

std::vector<bool> blocks_in(const std::vector<std::pair<int, int>>& ranges, std::size_t blocks) {
  const auto n = static_cast<int>(blocks);
  std::vector<bool> out(blocks, ranges.empty());
  for (const auto& [first, last] : ranges) {
    if (first < 0 || last < first || last >= n)
      throw InputError("'layers' must be ranges of the layers 0 to " + std::to_string(n - 1) + ", not " +
                       std::to_string(first) + "-" + std::to_string(last));
    std::fill(out.begin() + first, out.begin() + last + 1, true);
  }
  return out;
}

std::optional<std::vector<BlockRegion>> block_regions(const PolicyKind& kind, std::size_t blocks) {
  return std::visit(Finder(blocks), kind);
}

}  // namespace tidemark
