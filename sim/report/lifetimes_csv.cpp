#include "tidemark/report/lifetimes_csv.hpp"

#include <fmt/format.h>

namespace tidemark {

void write_lifetimes_csv(std::span<const Lifetime> lifetimes, const Arena* arena, const TextSink& sink) {
  sink(arena != nullptr ? "id,lower,upper,size,offset\n" : "id,lower,upper,size\n");
  for (std::size_t i = 0; i < lifetimes.size(); ++i) {
    const Lifetime& l = lifetimes[i];
    std::string line = fmt::format("{},{},{},{}", i, l.lower, l.upper, l.size.count);
    if (arena != nullptr) line += fmt::format(",{}", arena->offsets[i].count);
    sink(line + "\n");
  }
}

}  // namespace tidemark
