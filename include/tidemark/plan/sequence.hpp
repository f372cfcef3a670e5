/// How is a plan written on one line?
///
/// In the letters of the literature on chains (Beaumont et al. 2019), numbered by block:
///
///   Fe3  run block 3, keep all it saves      Fc3  keep its input only     Fn3  keep nothing, its input may go
///   L    the loss                            B3   backward
///   Dx3  discard the input of block 3        Dxbar3  discard what block 2 saved, its output (the input of 3) included
///
/// The first F of a block is its forward, later ones run it again. Beyond chains:
///
///   D3[0,2-5]    ops 0 and 2 to 5 of the block hold nothing of what they saved
///   Fe3[2-5]     only these ops run (again)          B3[7-9]  only their backward
///   Out3[..]     copies to the host, In3[..] back    Fe(head)  a layer that is no block, by its name
///   Outx3        copies the input of block 3 to the host, where it stays; Inx3 brings it back, as often as wanted
///
/// A sequence that names no layer but blocks runs the others in full where they belong: forward before the next block,
/// backward as soon as everything later has run backward.
#pragma once

#include <string>

#include "tidemark/plan/plan.hpp"
#include "tidemark/program/outline.hpp"

namespace tidemark {

/// Throws InputError with the number of the token that is not one of the above, or names a block or op that is not
/// there. Whether the plan can run is for `check_plan` to say.
Plan parse_sequence(const std::string& text, const Outline& outline);

/// Reads back as the same steps, but for region numbers.
std::string to_sequence(const Plan& plan, const Outline& outline);

/// What a sequence leaves unsaid: a plan that names no layer but blocks, with the others where they belong.
Plan complete(const Plan& plan, const Outline& outline);

}  // namespace tidemark
