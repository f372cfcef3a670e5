/// Any policy that fits a model, for properties.
#pragma once

#include <rapidcheck.h>

#include <set>
#include <string>
#include <vector>

#include "tidemark/plan/policy.hpp"
#include "tidemark/program/outline.hpp"

namespace tidemark {

inline int number(int first, int last) { return *rc::gen::inRange(first, last + 1); }

inline std::vector<std::int32_t> blocks_of(const Outline& outline) {
  std::vector<std::int32_t> out;
  for (std::size_t i = 0; i < outline.layers.size(); ++i)
    if (outline.layers[i].is_block) out.push_back(static_cast<std::int32_t>(i));
  return out;
}

inline policy::Selective random_selective(const Outline& outline) {
  policy::Selective out;
  std::set<std::string> kinds;
  for (const std::int32_t b : blocks_of(outline))
    for (const OutlineOp& op : outline.layers[static_cast<std::size_t>(b)].ops) kinds.insert(op.kind);
  for (const std::string& kind : kinds) {
    if (number(0, 2) == 0) out.recompute.push_back(kind);
    if (number(0, 2) == 0) out.keep.push_back(kind);
  }
  out.every = number(out.recompute.empty() && out.keep.empty() ? 2 : 1, 3);
  return out;
}

inline Policy random_policy(const Outline& outline) {
  const int blocks = static_cast<int>(blocks_of(outline).size());
  Policy policy;
  switch (number(0, 8)) {
    case 0:
      policy.kind = policy::None{};
      break;
    case 1:
      policy.kind = policy::Full{};
      break;
    case 2:
      policy.kind = policy::Interval{number(1, blocks + 2), number(0, 1) == 1};
      break;
    case 3:
      policy.kind = policy::Sqrt{number(0, 1) == 1};
      break;
    case 4:
      policy.kind = blocks > 0 ? PolicyKind(policy::Sequential{number(1, blocks)}) : policy::None{};
      break;
    case 5:
      policy.kind = policy::Block{number(0, blocks)};
      break;
    case 6:
      policy.kind = policy::Whole{};
      break;
    case 7:
      policy.kind = random_selective(outline);
      break;
    default:
      policy.kind = policy::Rule{};
      break;
  }
  policy.schedule = static_cast<RecomputeSchedule>(number(0, 2));
  const bool whole = policy.kind.index() < 7;
  if (whole && policy.schedule == RecomputeSchedule::per_segment)
    for (int n = number(0, 2); n > 0; --n) policy.nested.push_back(number(1, 4));
  return policy;
}

}  // namespace tidemark
