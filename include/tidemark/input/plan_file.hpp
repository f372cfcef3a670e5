/// How is a Plan written down, and read again?
///
/// steps:
///   - {op: forward, layer: 0, keep: input, region: 0}     # block 0
///   - {op: forward, layer: head}                          # a layer that is no block, by name
///   - {op: loss}
///   - {op: recompute, layer: 0, ops: [attention.softmax], region: 0}
///   - {op: backward, layer: 0}
/// What is left out is the whole layer, keep: all, no region. Reading what was written gives the same Plan.
#pragma once

#include <string>

#include "tidemark/input/document.hpp"
#include "tidemark/plan/plan.hpp"
#include "tidemark/program/outline.hpp"

namespace tidemark {

std::string write_plan(const Plan& plan, const Outline& outline);

/// Throws InputError for a layer or op that the outline does not have, and for what a plan file may not hold.
Plan read_plan(const std::string& path, const Outline& outline);
/// The same of a text; `name` is its name in messages.
Plan parse_plan(const std::string& text, const std::string& name, const Outline& outline);

/// `checkpointing: reentrant`, or a map of kind, early_stop and preserve_rng; of a plan file or a policy.
Checkpointing read_checkpointing(const DocPtr& node);

}  // namespace tidemark
