/// Who holds each tensor, at every instant of its life?
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tidemark/engine/timeline.hpp"
#include "tidemark/report/holding.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

/// From this event on (or from the birth, when that is later) a storage is held for this reason.
struct Holder {
  std::uint32_t from_event = 0;
  HoldReason reason;
  friend bool operator==(const Holder&, const Holder&) = default;
};

/// The holders of storage s are list[first[s]] up to list[first[s + 1]], ascending; a storage
/// that is never allocated has none.
struct Holders {
  std::vector<Holder> list;
  std::vector<std::uint32_t> first;  // one more than there are storages
};

/// Reads are walked once: linear in events, and in reads but for sorting those of one storage.
Holders holders(const Step& step, const Timeline& timeline);

/// The holder after an event at which the storage is alive.
std::string holder_at(const Step& step, const Holders& holders, StorageId storage, std::size_t event);

}  // namespace tidemark
