#include "tidemark/engine/composition.hpp"

#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

Bytes sum(Bytes a, Bytes b) {
  Bytes total;
  if (__builtin_add_overflow(a.count, b.count, &total.count)) throw InputError("live bytes pass 2^63");
  return total;
}

}  // namespace

Stretch compose(const Stretch& first, const Stretch& second) {
  const Bytes later = sum(first.net, second.crest);
  const bool rises = later > first.crest;
  return {.net = sum(first.net, second.net),
          .crest = rises ? later : first.crest,
          .where = rises ? first.length + second.where : first.where,
          .length = first.length + second.length};
}

Stretch power(const Stretch& stretch, std::uint64_t times) {
  if (times == 1) return stretch;  // most are
  Stretch all;
  Stretch square = stretch;
  for (;; square = compose(square, square)) {
    if ((times & 1U) != 0) all = compose(all, square);
    times >>= 1U;
    if (times == 0) return all;
  }
}

Stretch stretch(const Step& step, const Instruction& instruction) {
  if (instruction.what != Do::alloc && instruction.what != Do::free) return {.net = {}, .crest = {}, .length = 1};
  const Bytes bytes = step.storages[instruction.index].bytes;
  if (instruction.what == Do::free) return {.net = Bytes{} - bytes, .crest = {}, .length = 1};
  return {.net = bytes, .crest = bytes, .where = bytes > Bytes{} ? 1U : 0U, .length = 1};
}

std::vector<Stretch> stretches(const Step& step) {
  std::vector<Stretch> row;
  row.reserve(step.ops.size());
  OpId op = no_id;
  for (const Instruction& at : step.instructions) {
    if (row.empty() || at.op != op) row.emplace_back();
    op = at.op;
    row.back() = compose(row.back(), stretch(step, at));
  }
  return row;
}

Peak live_peak(const Step& step, const Stretch& whole) {
  Bytes start;
  for (const StorageId id : step.initial) start = sum(start, step.storages[id].bytes);
  return {sum(start, whole.crest), whole.where == 0 ? 0 : whole.where - 1};
}

}  // namespace tidemark
