#include "tidemark/report/textbook.hpp"

#include <fmt/format.h>

#include <array>

#include "tidemark/base/vocabulary.hpp"

namespace tidemark {
namespace {

std::string boundaries_reason(const Textbook& t, std::int64_t alive) {
  const std::int64_t counted = textbook_boundaries(t);
  const std::int64_t rest = t.layers % t.interval;
  if (alive > counted) return fmt::format("{} tensors are kept to recompute from, not {}", alive, counted);
  if (rest != 0)
    return fmt::format("the last segment has {} of {} layers, and its boundary is gone when a full segment is rebuilt",
                       rest, t.interval);
  return fmt::format("{} of {} boundaries are alive at the peak: the others' segments are done, or not yet begun",
                     alive, counted);
}

std::string layers_reason(const Textbook& t, Bytes alive) {
  const Bytes counted = t.interval * t.layer;
  if (t.interval > t.layers)
    return fmt::format("a segment has no more than the model's {} layers; the formula counts {}", t.layers, t.interval);
  return fmt::format("rebuilt layers hold {} at the peak; the formula counts {}, {} whole layers", pretty(alive),
                     pretty(counted), t.interval);
}

using OtherBytes = std::array<Bytes, category_names.size()>;

std::string other_reason(const OtherBytes& other) {
  std::string parts;
  for (std::size_t c = 0; c < other.size(); ++c)
    if (other[c].count > 0)
      parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", category_names[c], pretty(other[c]));
  return "the formula leaves out " + parts;
}

}  // namespace

std::int64_t textbook_boundaries(const Textbook& t) { return (t.layers + t.interval - 1) / t.interval; }

Bytes textbook_peak(const Textbook& t) { return textbook_boundaries(t) * t.boundary + t.interval * t.layer; }

TextbookComparison compare_with_textbook(const Textbook& t, const Step& step,
                                         const std::vector<PeakStorage>& storages) {
  TextbookComparison out;
  out.textbook = t;
  out.formula = textbook_peak(t);
  OtherBytes other{};
  for (const PeakStorage& s : storages) {
    const StepStorage& storage = step.storages[s.storage];
    const bool kept = storage.category == Category::activation || storage.category == Category::input;
    if (s.rebuilt && storage.category == Category::activation) {
      out.layers += storage.bytes;
    } else if (s.read_by_recompute && kept) {
      ++out.boundaries_alive;
      out.boundaries += storage.bytes;
    } else {
      other[static_cast<std::size_t>(storage.category)] += storage.bytes;
      out.other += storage.bytes;
    }
  }
  if (out.boundaries != textbook_boundaries(t) * t.boundary)
    out.reasons.push_back(boundaries_reason(t, out.boundaries_alive));
  if (out.layers != t.interval * t.layer) out.reasons.push_back(layers_reason(t, out.layers));
  if (out.other.count > 0) out.reasons.push_back(other_reason(other));
  return out;
}

}  // namespace tidemark
