/// Which settings of a scenario does a study vary, and which of their combinations?
///
/// A study is a scenario with one block more:
///
///   sweep:
///     policy.interval: 1..36                # axis.hpp says what values may look like
///     policy.recompute: {subsets: [softmax, dropout, gelu]}
///     zip:                                  # axes that move together
///       batch.size: [1, 2, 4]
///       batch.sequence: [4096, 2048, 1024]
///     where:                                # condition.hpp; all must hold
///       - model.layers % policy.interval == 0
///
/// The grid is the product of the axes, those of a zip counting as one; the last one varies fastest. A point is a
/// place in the grid that the conditions let through.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tidemark/input/axis.hpp"
#include "tidemark/input/condition.hpp"
#include "tidemark/input/document.hpp"
#include "tidemark/input/scenario.hpp"

namespace tidemark {

struct Study {
  DocPtr scenario;  // without the sweep block
  std::string file;
  std::vector<Axis> axes;
  std::vector<std::vector<std::size_t>> dimensions;  // of the grid: the axes that move together
  std::vector<Condition> conditions;
};

/// `vary` adds axes, or replaces the values of one. Throws InputError when no axis is left, for an axis without values
/// or that names no key, for zipped axes of unlike lengths, and for what is no condition.
Study read_study(const std::string& path, const std::vector<std::string>& vary);

/// Places in the grid; nothing past 2^63.
std::optional<std::int64_t> grid_size(const Study& study);

/// By axis: which of its values holds at a place of the grid.
std::vector<std::size_t> choices_at(const Study& study, std::int64_t index);
/// By axis: that value.
std::vector<std::string> values_at(const Study& study, std::int64_t index);
/// The conditions let the place through. Throws InputError where one cannot be decided.
bool is_wanted(const Study& study, std::int64_t index);

/// In which order the axes are set: whole blocks and kinds first, since a kind that is set drops its block's other
/// keys.
std::vector<std::size_t> setting_order(const Study& study);
/// The scenario at one point: each axis's key set to its value.
Scenario scenario_at(const Study& study, const std::vector<std::string>& values);

}  // namespace tidemark
