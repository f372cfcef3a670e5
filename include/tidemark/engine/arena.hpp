/// At which addresses can a whole step live, when every lifetime is known beforehand, and how high does it get?
///
///   address
///     |  ______      ____
///     | |  b   |____|  d |      a: [0, 6) b: [0, 2) c: [2, 4) d: [4, 6)
///     | |______|__c_|____|
///     | |________a_______|__ time
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tidemark/base/units.hpp"
#include "tidemark/engine/lifetime.hpp"

namespace tidemark {

struct Arena {
  std::vector<Bytes> offsets;  // by lifetime
  Bytes height;                // what the arena must hold
  Bytes lower_bound;           // no arrangement is lower: the most bytes alive at a time, or what a search has proven
  bool is_optimal() const { return height == lower_bound; }
  Bytes gap() const { return height - lower_bound; }
  friend bool operator==(const Arena&, const Arena&) = default;
};

/// How long to look; counted in steps, so that the answer does not depend on the machine.
struct ArenaEffort {
  std::size_t search_up_to = 500;        // lifetimes; more are placed by best fit and first fit alone
  std::size_t first_fit_up_to = 20'000;  // lifetimes; more are placed by best fit alone
  std::int64_t steps = 400'000'000;      // of the search; about a second
};

/// The lowest arena found. Sizes must be positive, and every lifetime end after it begins.
Arena make_arena(std::span<const Lifetime> lifetimes, const ArenaEffort& effort = {});
/// An arena of at most `capacity`, or nothing when none was found.
std::optional<Arena> fit_arena(std::span<const Lifetime> lifetimes, Bytes capacity, const ArenaEffort& effort = {});

}  // namespace tidemark
