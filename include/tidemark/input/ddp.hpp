/// How do replicas under DistributedDataParallel reduce their gradients?
#pragma once

#include "tidemark/program/shards.hpp"

namespace tidemark {

struct Field;

/// The block `parallel.ddp`, whose keys are those of DistributedDataParallel. `field` is null where it is not given;
/// `wraps`: there are replicas that it wraps. Throws InputError, with the place, where a setting has no meaning.
Ddp read_ddp(const Field* field, bool wraps);

}  // namespace tidemark
