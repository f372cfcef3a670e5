#include "tidemark/plan/policy.hpp"

#include "tidemark/base/errors.hpp"
#include "tidemark/plan/choices.hpp"
#include "tidemark/plan/order.hpp"
#include "tidemark/plan/sequence.hpp"
#include "tidemark/plan/validity.hpp"

namespace tidemark {
namespace {

/// A plan that is ordered already leaves nothing for the schedule to say.
void check_no_schedule(const Policy& policy) {
  if (policy.schedule != RecomputeSchedule::per_segment || !policy.on_grad_of.empty() || !policy.nested.empty())
    throw InputError(
        "a finished plan says itself when it recomputes; expected no 'schedule', 'on_grad_of' or 'nested'");
}

Plan ordered(const Policy& policy, const Outline& outline) {
  if (const auto* sequence = std::get_if<policy::Sequence>(&policy.kind)) {
    check_no_schedule(policy);
    return parse_sequence(sequence->sequence, outline);
  }
  if (const auto* given = std::get_if<policy::Given>(&policy.kind)) {
    check_no_schedule(policy);
    return complete(given->plan, outline);
  }
  return put_in_order(choose(policy.kind, outline), policy, outline);
}

}  // namespace

Plan make_plan(const Policy& policy, const Outline& outline) {
  Plan plan = ordered(policy, outline);
  plan.hold_boundaries = plan.hold_boundaries || policy.hold_boundaries;
  if (!std::holds_alternative<policy::Given>(policy.kind)) plan.checkpointing = policy.checkpointing;
  check_plan(plan, outline);
  return plan;
}

}  // namespace tidemark
