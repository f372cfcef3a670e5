/// How are the units of fully sharded data parallel gathered, reduced and let go?
#pragma once

#include "tidemark/program/training.hpp"

namespace tidemark {

struct Field;

/// The block `parallel.fsdp`, whose keys are those of FullyShardedDataParallel and fully_shard. `field` is null where
/// it is not given. `shards` has its degrees. Throws InputError, with the place, where a setting has no meaning.
Fsdp read_fsdp(const Field* field, const Shards& shards, const Training& training);

}  // namespace tidemark
