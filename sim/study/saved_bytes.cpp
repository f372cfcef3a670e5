#include "tidemark/study/saved_bytes.hpp"

#include <algorithm>

#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

constexpr std::int64_t units = 1000;

const OutlineLayer& at(const Outline& outline, std::int32_t layer) {
  return outline.layers[static_cast<std::size_t>(layer)];
}

struct Item {
  std::int32_t layer = 0;
  std::size_t op = 0;
  std::int64_t bytes = 0, worth = 0;
};

}  // namespace

Bytes saved_by_blocks(const Outline& outline) {
  Bytes out;
  for (const std::int32_t layer : block_layers(outline)) out += at(outline, layer).saved_bytes;
  return out;
}

std::vector<std::int64_t> worth_of(const Outline& outline, const LayerGraph* graph) {
  std::vector<std::int64_t> out;
  const bool timed = graph != nullptr && std::ranges::any_of(graph->layers, [](const LayerCost& layer) {
                       return layer.forward_time.count > 0;
                     });
  for (std::size_t i = 0; i < outline.layers.size(); ++i)
    for (const OutlineOp& op : outline.layers[i].ops)
      out.push_back(timed ? graph->layers[i].forward_time.count : static_cast<std::int64_t>(op.forward_flops.count));
  return out;
}

SavedChoice knapsack(const Outline& outline, const std::vector<std::int64_t>& worth, Bytes most) {
  SavedChoice out;
  std::vector<Item> items;
  std::size_t next = 0;
  for (std::size_t i = 0; i < outline.layers.size(); ++i) {
    const OutlineLayer& layer = outline.layers[i];
    auto& choices = out.choices.ops.emplace_back(layer.ops.size(), OpChoice::hold);
    for (std::size_t k = 0; k < layer.ops.size(); ++k, ++next) {
      if (!layer.is_block || layer.ops[k].saved_bytes.count == 0) continue;
      items.push_back({static_cast<std::int32_t>(i), k, layer.ops[k].saved_bytes.count, worth.at(next)});
      choices[k] = OpChoice::rerun;
    }
    if (std::ranges::find(choices, OpChoice::rerun) != choices.end())
      out.choices.regions.push_back({static_cast<std::int32_t>(i)});
  }
  // best[i][u]: the most worth of the items from i on in u units.
  const std::int64_t unit = std::max<std::int64_t>(1, (most.count + units - 1) / units), room = most.count / unit;
  const auto width = static_cast<std::size_t>(room + 1);
  std::vector<std::int64_t> best((items.size() + 1) * width, 0);
  const auto size = [&](const Item& item) { return (item.bytes + unit - 1) / unit; };
  for (std::size_t i = items.size(); i-- > 0;)
    for (std::int64_t u = 0; u <= room; ++u) {
      const std::int64_t without = best[(i + 1) * width + static_cast<std::size_t>(u)];
      const std::int64_t left = u - size(items[i]);
      best[i * width + static_cast<std::size_t>(u)] =
          left < 0 ? without
                   : std::max(without, items[i].worth + best[(i + 1) * width + static_cast<std::size_t>(left)]);
    }
  std::int64_t u = room;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (best[i * width + static_cast<std::size_t>(u)] == best[(i + 1) * width + static_cast<std::size_t>(u)]) continue;
    u -= size(items[i]);
    out.saved += Bytes{items[i].bytes};
    out.choices.ops[static_cast<std::size_t>(items[i].layer)][items[i].op] = OpChoice::hold;
  }
  std::erase_if(out.choices.regions, [&](const std::vector<std::int32_t>& region) {
    return !out.choices.has(region.front(), OpChoice::rerun);
  });
  return out;
}

Choices greedy_segments(const Outline& outline, Bytes most) {
  Choices out;
  for (const OutlineLayer& layer : outline.layers) out.ops.emplace_back(layer.ops.size(), OpChoice::hold);
  Bytes segment;
  for (const std::int32_t layer : block_layers(outline)) {
    const Bytes saved = at(outline, layer).saved_bytes;
    if (out.regions.empty() || segment + saved > most || out.regions.back().back() + 1 != layer) {
      out.regions.emplace_back();
      segment = {};
    }
    segment += saved;
    out.regions.back().push_back(layer);
    auto& ops = out.ops[static_cast<std::size_t>(layer)];
    ops.assign(ops.size(), OpChoice::rerun);
  }
  return out;
}

}  // namespace tidemark
