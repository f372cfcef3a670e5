#include "draft.hpp"

namespace tidemark::kernels {

RuleTable cuda_rules() {
  RuleTable rules = ideal_rules();
  return rules;
}

}  // namespace tidemark::kernels
