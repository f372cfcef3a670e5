#include "draft.hpp"

namespace tidemark::kernels {

RuleTable transformer_engine_rules() {
  RuleTable rules = cuda_rules();
  return rules;
}

}  // namespace tidemark::kernels
