/// When was it, and what ran then?
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tidemark/base/units.hpp"
#include "tidemark/base/vocabulary.hpp"
#include "tidemark/engine/timeline.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

struct Moment {
  Bytes bytes;
  int step = 0;
  Nanos time;
  std::string op;     // "" at the start, before any op
  std::string layer;  // "" without one
  Phase phase = Phase::initial;
  friend bool operator==(const Moment&, const Moment&) = default;
};

/// "" without one.
std::string_view layer_name(const Step& step, std::int32_t layer);

/// Right after the event.
Moment moment_of(const Step& step, const MemoryEvent& event);

}  // namespace tidemark
