/// How high do many layers stand, without walking through them again?
///
/// A stretch of live memory is summed up by what it leaves behind and how high it rises above its start. Stretches
/// compose, so equal layers cost log L and a change in a long step costs log n. It holds for live bytes of one stream's
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

/// A row of stretches whose composition stays at hand while single ones change.
class StretchTree {
 public:
  explicit StretchTree(const std::vector<Stretch>& row);
  /// Composes log n times.
  void set(std::size_t i, const Stretch& stretch);
  const Stretch& at(std::size_t i) const { return nodes_[leaves_ + i]; }
  const Stretch& whole() const { return nodes_[1]; }
  /// Of stretches `begin` to `end - 1`; composes log n times.
  Stretch range(std::size_t begin, std::size_t end) const;

 private:
  std::size_t leaves_ = 1;      // a power of two; the rest of the row is the identity
  std::vector<Stretch> nodes_;  // node i is made of 2i and 2i + 1; the root is 1
};

}  // namespace tidemark
