/// Which points of a study differ in policy alone, and what are their rows?
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tidemark/input/study_file.hpp"
#include "tidemark/study/composer.hpp"
#include "tidemark/study/sweep_row.hpp"

namespace tidemark {

class ComposedPoints {
 public:
  explicit ComposedPoints(const Study& study);
  ComposedPoints(const ComposedPoints&) = delete;
  ComposedPoints& operator=(const ComposedPoints&) = delete;

  /// A point's row from pieces, every figure as `simulated_row` has it; nothing where it must be simulated. May be
  /// called from many threads; the answer does not depend on what was asked before.
  std::optional<SweepRow> row(std::int64_t index);

 private:
  /// A model with its other settings: made by whoever asks first, null where it cannot be composed.
  struct Setting {
    std::once_flag made;
    std::unique_ptr<Composer> composer;
    std::atomic<std::size_t> counted = 0;  // of its libraries, in libraries_
  };
  std::shared_ptr<Setting> setting(const std::vector<std::size_t>& choices);
  void forget();
  void count(Setting& of);
  std::unique_ptr<Composer> make_composer(const std::vector<std::size_t>& choices) const;
  DocPtr value_node(std::size_t axis, std::size_t choice) const;
  Policy policy_at(const std::vector<std::size_t>& choices) const;

  const Study& study_;
  bool worthwhile_ = false;               // a setting has enough policies to pay for its composer
  std::vector<std::size_t> policy_axes_;  // in the order they are set
  std::vector<std::size_t> other_axes_;
  std::vector<std::vector<DocPtr>> nodes_;  // by axis and choice; empty where an axis is long
  DocPtr policy_;                           // a document of the study's policy alone
  std::mutex lock_;
  std::map<std::vector<std::size_t>, std::shared_ptr<Setting>> settings_;  // by choice of the other axes
  std::size_t libraries_ = 0;                                              // of all settings
};

}  // namespace tidemark
