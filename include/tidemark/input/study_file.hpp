/// Which settings of a scenario does a study vary?
///
/// A study is a scenario with one block more:
///
///   sweep:
///     policy.interval: 1..36            # 1, 2, ... 36
///     batch.size: [1, 2, 4]
///     batch.sequence: 1024..8192 x2     # 1024, 2048, 4096, 8192
///
/// Points are the product of the axes; the last one varies fastest.
#pragma once

#include <string>
#include <vector>

#include "tidemark/input/document.hpp"
#include "tidemark/input/scenario.hpp"

namespace tidemark {

/// One key path and the values it takes, each as flow YAML.
struct Axis {
  std::string key;
  std::vector<std::string> values;
  friend bool operator==(const Axis&, const Axis&) = default;
};

/// "policy.interval=1..36", the text after --vary. Throws InputError without '=', or for an empty or backward range.
Axis parse_axis(const std::string& text);

struct Study {
  DocPtr scenario;  // without the sweep block
  std::string file;
  std::vector<Axis> axes;
};

/// `vary` adds axes, or replaces the values of one. Throws InputError when no axis is left, or for two of one key.
Study read_study(const std::string& path, const std::vector<std::string>& vary);

/// The scenario at one point: each axis's key set to its value, then `sets`.
Scenario scenario_at(const Study& study, const std::vector<std::string>& values);

}  // namespace tidemark
