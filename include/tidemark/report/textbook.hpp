/// How does the simulated peak differ from ceil(L/K) * boundary + K * layer, and why?
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tidemark/report/peak.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

/// Chen et al. 2016 as it is usually quoted, for L equal layers in segments of K.
struct Textbook {
  std::int64_t layers = 0;
  std::int64_t interval = 0;
  Bytes layer;     // what one layer saves when run in full
  Bytes boundary;  // its input
  friend bool operator==(const Textbook&, const Textbook&) = default;
};
std::int64_t textbook_boundaries(const Textbook& textbook);  // ceil(L/K)
/// The formula as it is usually applied: K layers, even where the model has fewer.
Bytes textbook_peak(const Textbook& textbook);

/// Why the simulated peak differs by `bytes`.
struct TextbookReason {
  Bytes bytes;
  std::string text;
  friend bool operator==(const TextbookReason&, const TextbookReason&) = default;
};

/// The simulated peak in the formula's terms; boundaries + layers + other is the whole peak.
struct TextbookComparison {
  Textbook textbook;
  Bytes formula;
  std::int64_t boundaries_alive = 0;  // tensors of that size that a recompute starts from
  Bytes boundaries;
  Bytes layers;                         // rebuilt activations
  Bytes other;                          // what the formula does not speak of
  std::vector<TextbookReason> reasons;  // they add up to peak - formula
  friend bool operator==(const TextbookComparison&, const TextbookComparison&) = default;
};
TextbookComparison compare_with_textbook(const Textbook& textbook, const Step& step,
                                         const std::vector<PeakStorage>& storages);

}  // namespace tidemark
