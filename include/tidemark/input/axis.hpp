/// Which values does one key of a study take?
///
///   [1, 2, full]                 a list
///   1..36                        1, 2, ... 36
///   8..64 by 8                   8, 16, ... 64; sizes and decimals too: 16GiB..80GiB by 8GiB, 0.1..0.5 by 0.1
///   1..64 x2                     1, 2, 4, ... 64
///   1..1000 log 4                4 values in equal ratios, rounded: 1, 10, 100, 1000
///   {subsets: [softmax, gelu]}   [softmax], [gelu], [softmax, gelu]; at_least (1) and at_most bound their size
///   anything else                itself, alone
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tidemark/input/document.hpp"

namespace tidemark {

/// One key path and the values it takes, each as flow YAML.
struct Axis {
  std::string key;
  std::vector<std::string> values;
  friend bool operator==(const Axis&, const Axis&) = default;
};

/// The most values an axis, and the most ops a set of subsets may have.
inline constexpr std::size_t max_axis_values = 10'000'000;
inline constexpr std::size_t max_subset_ops = 20;

/// The values that a node stands for. Throws InputError for a range that is backward, endless or no numbers, and for
/// subsets of nothing.
std::vector<std::string> axis_values(const DocNode& node);

/// "policy.interval=1..36", the text after --vary. Throws InputError without '=', or for an empty or backward range.
Axis parse_axis(const std::string& text);

/// Throws InputError for a path that leads to no key of a scenario, with the nearest there is. `scenario` says which
/// keys the model and the policy have, unless the axes `keys` change their kind.
void check_axis_key(const std::string& key, const SourceLoc& where, const DocNode& scenario,
                    const std::vector<std::string>& keys);

}  // namespace tidemark
