/// When does each instruction happen, and what is alive then?
///
/// Two clocks. The host issues instructions in list order, in lockstep with the compute stream: an instruction of
/// another stream is issued at the host's time and starts when its own stream is free and has waited. An alloc happens
/// when it is issued. A free on the compute stream happens when it is issued; a free on another stream when that
/// stream has done all that was issued to it before. At one instant events keep program order (M10).
///
/// Each rank runs its own part of the list, with its own host, streams and memory; ranks meet at events.
#pragma once

#include <span>

#include "tidemark/base/device.hpp"
#include "tidemark/engine/allocator.hpp"
#include "tidemark/engine/timeline.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

/// The whole timeline. Throws InputError naming the op when live bytes or nanoseconds pass 2^63, InternalError when
/// the Step is broken: an event nobody records, an id out of range.
Timeline simulate(const Step& step, const Device& device);
/// The same, with the allocator's figures beside it. `allocators` holds one for each rank.
Timeline simulate(const Step& step, const Device& device, std::span<Allocator* const> allocators);
Timeline simulate(const Step& step, const Device& device, Allocator& allocator);

struct Peak {
  Bytes bytes;
  std::size_t instruction = 0;  // index into Step::instructions of the alloc that reaches it; 0: the initial storages
  friend bool operator==(const Peak&, const Peak&) = default;
};
/// Only the peak of live bytes of a Step whose frees are all on the compute stream: one scan, no timeline.
Peak live_peak(const Step& step);

}  // namespace tidemark
