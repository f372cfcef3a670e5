/// From when to when does each storage live, in minimalloc's words?
#pragma once

#include <span>

#include "tidemark/engine/arena.hpp"
#include "tidemark/report/csv.hpp"

namespace tidemark {

/// Columns id,lower,upper,size, and offset with an arena. Times are event numbers; alive in [lower, upper). `id`
/// counts from 0. google/minimalloc reads this file.
void write_lifetimes_csv(std::span<const Lifetime> lifetimes, const Arena* arena, const TextSink& sink);

}  // namespace tidemark
