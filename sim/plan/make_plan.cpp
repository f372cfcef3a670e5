#include <map>
#include <utility>

#include "tidemark/base/errors.hpp"
#include "tidemark/plan/choices.hpp"
#include "tidemark/plan/offload.hpp"
#include "tidemark/plan/order.hpp"
#include "tidemark/plan/policy.hpp"
#include "tidemark/plan/selection.hpp"
#include "tidemark/plan/sequence.hpp"
#include "tidemark/plan/validity.hpp"

namespace tidemark {
namespace {

using Kind = Checkpointing::Kind;

/// A plan that is ordered already leaves nothing for the schedule to say.
void check_no_schedule(const Policy& policy) {
  if (policy.schedule != RecomputeSchedule::per_segment || !policy.on_grad_of.empty() || !policy.nested.empty())
    throw InputError(
        "a finished plan says itself when it recomputes; expected no 'schedule', 'on_grad_of' or 'nested'");
}

/// Saved-tensor hooks see every node that a region's forward makes: nothing of it runs again.
void offload(const Outline& outline, Choices& choices) {
  for (const auto& region : choices.regions)
    for (const std::int32_t layer : region) {
      if (!choices.is_whole(layer))
        throw InputError("offload hooks copy what whole blocks save and cannot select ops; '" +
                         outline.layers[static_cast<std::size_t>(layer)].name + "' would run in part");
      auto& ops = choices.ops[static_cast<std::size_t>(layer)];
      ops.assign(ops.size(), OpChoice::hold);
    }
}

/// torch.utils.checkpoint runs a region again when its backward begins, and knows two answers for an op inside: run it
/// again, or take the result it has cached. Only its non-reentrant form has the second. Where nothing is cached, the
/// ops that run again are functions with a region each.
void fit_to_framework(const Policy& policy, const Outline& outline, Choices& choices) {
  if (policy.checkpointing.kind == Kind::direct) return;
  if (policy.schedule != RecomputeSchedule::per_segment || !policy.nested.empty())
    throw InputError(
        "torch's checkpointing says itself when a region runs again; expected schedule per_segment and no 'nested', "
        "or checkpointing direct");
  if (policy.checkpointing.kind == Kind::offload) return offload(outline, choices);
  for (const auto& region : choices.regions)
    for (const std::int32_t layer : region) {
      if (choices.is_whole(layer) || choices.has_functions(layer)) continue;
      if (policy.checkpointing.kind == Kind::reentrant)
        throw InputError(
            "re-entrant checkpointing runs whole regions again and cannot keep ops' results; expected nonreentrant or "
            "direct");
      const auto& ops = outline.layers[static_cast<std::size_t>(layer)].ops;
      for (std::size_t k = 0; k < ops.size(); ++k)
        if (OpChoice& choice = choices.ops[static_cast<std::size_t>(layer)][k]; choice == OpChoice::hold)
          choice = is_view(ops[k]) ? OpChoice::rerun : OpChoice::cached;
    }
}

/// From 0, in the order of their first step.
void renumber_regions(Plan& plan) {
  std::map<std::int32_t, std::int32_t> numbers;
  for (PlanStep& step : plan.steps)
    if (step.region >= 0)
      step.region = numbers.emplace(step.region, static_cast<std::int32_t>(numbers.size())).first->second;
}

Plan ordered(Choices choices, const Policy& policy, const Outline& outline) {
  fit_to_framework(policy, outline, choices);
  return put_in_order(choices, policy, outline);
}

/// `regions`: in place of those the policy makes; null for its own.
Plan ordered(const Policy& policy, const std::vector<BlockRegion>* regions, const Outline& outline) {
  if (const auto* sequence = std::get_if<policy::Sequence>(&policy.kind)) {
    check_no_schedule(policy);
    return parse_sequence(sequence->sequence, outline);
  }
  if (const auto* given = std::get_if<policy::Given>(&policy.kind)) {
    check_no_schedule(policy);
    Plan plan = complete(given->plan, outline);
    renumber_regions(plan);
    return plan;
  }
  const bool views_along = views_run_along(policy);
  return ordered(regions != nullptr ? choose(policy.kind, *regions, outline, views_along)
                                    : choose(policy.kind, outline, views_along),
                 policy, outline);
}

Plan finished(Plan plan, const Policy& policy, const Outline& outline) {
  plan.hold_boundaries = plan.hold_boundaries || policy.hold_boundaries;
  if (!std::holds_alternative<policy::Given>(policy.kind)) plan.checkpointing = policy.checkpointing;
  if (policy.offload) add_copies(*policy.offload, outline, plan);
  check_plan(plan, outline);
  return plan;
}

}  // namespace

bool views_run_along(const Policy& policy) {
  const auto* selective = std::get_if<policy::Selective>(&policy.kind);
  return policy.checkpointing.kind == Kind::direct || selective == nullptr || !selective->keep.empty();
}

Plan make_plan(const Policy& policy, const Outline& outline) {
  return finished(ordered(policy, nullptr, outline), policy, outline);
}

Plan make_plan(const Policy& policy, const std::vector<BlockRegion>& regions, const Outline& outline) {
  return finished(ordered(policy, &regions, outline), policy, outline);
}

Plan make_plan(Choices choices, const Policy& policy, const Outline& outline) {
  check(!std::holds_alternative<policy::Given>(policy.kind), "choices take the place of a policy's kind");
  return finished(ordered(std::move(choices), policy, outline), policy, outline);
}

}  // namespace tidemark
