/// How does a policy do on a model of equal blocks, without lowering them all?
///
/// The model is lowered once without recomputation; a small model of six blocks once for each way in which blocks can
/// choose ops and stand beside each other. From their pieces a policy's whole step is composed: every live figure is
/// that of the full simulation (docs/decisions has why). What cannot be composed is said so, and simulated.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tidemark/engine/repeats.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/report/summary.hpp"
#include "tidemark/study/block_library.hpp"

namespace tidemark {

struct ComposerModel;

class Composer {
 public:
  /// The scenario's own policy does not matter. Throws InputError where the model is none, NotComposable where its
  /// steps cannot be made of pieces: layers given by numbers, captured programs, the native reference, an allocator
  /// model, few blocks.
  explicit Composer(const Scenario& scenario);
  Composer(const Composer&) = delete;
  Composer& operator=(const Composer&) = delete;
  ~Composer();

  /// The summary under a policy, of the step with the peak and the last one alone; no tensors, warnings or allocator
  /// figures. Nothing where the policy must be simulated. May be called from many threads; the answer does not depend
  /// on what was asked before.
  std::optional<Summary> summary(const Policy& policy);

  /// Libraries made so far: of each choice of ops, one for each kind of step and of micro-batch.
  std::size_t libraries() const;

 private:
  struct Shelf;
  struct Score;
  const BlockLibrary* library(const Policy& policy, bool with_gaps);
  Score score(const std::vector<BlockRegion>& regions, const BlockLibrary& pieces) const;
  Summary compose(const std::vector<BlockRegion>& regions, const BlockLibrary& pieces) const;

  std::unique_ptr<const ComposerModel> model_;
  Repeats::Sums conserved_;  // of the run without recomputation
  mutable std::mutex lock_;
  std::map<std::string, std::shared_ptr<Shelf>, std::less<>> shelves_;
};

}  // namespace tidemark
