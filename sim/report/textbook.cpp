#include "tidemark/report/textbook.hpp"

#include <fmt/format.h>

#include <array>

#include "tidemark/base/vocabulary.hpp"

namespace tidemark {
namespace {

std::string boundaries_reason(const Textbook& t, std::int64_t alive) {
  const std::int64_t counted = textbook_boundaries(t);
  const std::int64_t rest = t.layers % t.interval;
  const std::string numbers = fmt::format("{} of {} boundaries", alive, counted);
  if (alive > counted) return fmt::format("{} tensors are kept to recompute from, not {}", alive, counted);
  if (alive == counted - 1 && rest != 0)
    return fmt::format("{}: the last segment has {} of {} layers, and its boundary is gone when a full one is rebuilt",
                       numbers, rest, t.interval);
  return numbers + ": those of segments that are done have gone (boundaries: hold would count them)";
}

std::string layers_reason(const Textbook& t, Bytes alive) {
  if (t.interval > t.layers)
    return fmt::format("a segment has no more than the model's {} layers; the formula counts {}", t.layers, t.interval);
  return fmt::format("rebuilt layers hold {}; the formula counts {} whole {}", pretty(alive), t.interval,
                     t.interval == 1 ? "layer" : "layers");
}

}  // namespace

std::int64_t textbook_boundaries(const Textbook& t) { return (t.layers + t.interval - 1) / t.interval; }

Bytes textbook_peak(const Textbook& t) { return textbook_boundaries(t) * t.boundary + t.interval * t.layer; }

TextbookComparison compare_with_textbook(const Textbook& t, const Step& step,
                                         const std::vector<PeakStorage>& storages) {
  TextbookComparison out;
  out.textbook = t;
  out.formula = textbook_peak(t);
  std::array<Bytes, category_names.size()> other{};
  for (const PeakStorage& s : storages) {
    const StepStorage& storage = step.storages[s.storage];
    const bool kept = storage.category == Category::activation || storage.category == Category::input;
    if (s.rebuilt && storage.category == Category::activation) {
      out.layers += storage.bytes;
    } else if (kept && s.read_by_recompute && storage.bytes == t.boundary) {
      ++out.boundaries_alive;
      out.boundaries += storage.bytes;
    } else {
      other[static_cast<std::size_t>(storage.category)] += storage.bytes;
      out.other += storage.bytes;
    }
  }
  const auto add = [&](Bytes difference, const std::string& text) {
    if (difference.count != 0) out.reasons.push_back({difference, text});
  };
  add(out.boundaries - textbook_boundaries(t) * t.boundary, boundaries_reason(t, out.boundaries_alive));
  add(out.layers - t.interval * t.layer, layers_reason(t, out.layers));
  for (std::size_t c = 0; c < other.size(); ++c)
    add(other[c], std::string(category_names[c]) + ", which the formula leaves out");
  return out;
}

}  // namespace tidemark
