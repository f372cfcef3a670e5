/// How does DeepSpeed reduce gradients and gather parameters?
#pragma once

#include "tidemark/program/shards.hpp"

namespace tidemark {

struct Field;

/// The block `parallel.zero_optimization`, whose keys are those of DeepSpeed's section. `field` is null where it is not
/// given. `shards` has its degrees. Throws InputError, with the place, where a setting has no meaning.
ZeroOptimization read_zero_optimization(const Field* field, const Shards& shards);

}  // namespace tidemark
