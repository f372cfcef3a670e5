/// How high do many layers stand, without walking through them again?
///
/// A stretch of live memory is summed up by what it leaves behind and how high it rises above its start. Stretches
/// compose, so equal layers cost log L. It holds for live bytes of one stream's
/// order. A layer's stretch depends on who frees its boundary and who adds its gradient: equal ops alone are not equal
/// stretches. A plan counts as fitting only after a full simulation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tidemark/base/units.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

struct Stretch {
  Bytes net;               // live at its end minus live at its start
  Bytes crest;             // the most it rises above its start, at least 0
  std::size_t where = 0;   // instructions until the crest is first reached; 0: its start
  std::size_t length = 0;  // in instructions
  friend bool operator==(const Stretch&, const Stretch&) = default;
};

/// One after the other. Associative; Stretch{} is the identity. Throws InputError past 2^63.
Stretch compose(const Stretch& first, const Stretch& second);
/// `times` copies in a row, by squaring.
Stretch power(const Stretch& stretch, std::uint64_t times);
/// Of a single instruction: what is not an alloc or a free changes nothing.
Stretch stretch(const Step& step, const Instruction& instruction);
/// Of each run of instructions of one op, in order.
std::vector<Stretch> stretches(const Step& step);
/// The peak of a step whose instructions make up `whole`.
Peak live_peak(const Step& step, const Stretch& whole);

}  // namespace tidemark
