#include "tidemark/engine/piece.hpp"

#include <algorithm>

#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

/// FNV-1a, a word at a time.
class Digest {
 public:
  void add(std::int64_t value) { value_ = (value_ ^ static_cast<std::uint64_t>(value)) * 0x100000001b3U; }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325U;
};

void add(std::int64_t& total, std::int64_t amount, const char* what) {
  if (__builtin_add_overflow(total, amount, &total)) throw InputError(std::string(what) + " pass 2^63");
}

}  // namespace

bool alike(const Piece& a, const Piece& b) {
  return a.digest == b.digest && a.stretch == b.stretch && a.net == b.net && a.at_crest == b.at_crest &&
         a.time == b.time && a.flops == b.flops && a.before_crest == b.before_crest && a.forward_end == b.forward_end &&
         a.events == b.events && a.ops == b.ops && (a.crest_op == no_id) == (b.crest_op == no_id);
}

bool has_one_stream(const Step& step) {
  return step.ranks == 1 && std::ranges::all_of(step.instructions, [](const Instruction& at) {
           return at.stream == Stream::compute &&
                  (at.what == Do::alloc || at.what == Do::free || at.what == Do::compute);
         });
}

Piece piece_of(const Step& step, const OpTimes& times, const PieceRange& range) {
  Piece out;
  Digest digest;
  Nanos now;
  Bytes level;
  OpId op = no_id;
  for (std::size_t i = range.begin; i < range.end; ++i) {
    const Instruction& at = step.instructions[i];
    if (op != no_id && at.op != op && step.ops[op].phase == Phase::forward) out.forward_end = level;
    op = at.op;
    digest.add(static_cast<std::int64_t>(at.what));
    ++out.stretch.length;
    if (at.what == Do::compute) {
      const StepOp& running = step.ops[at.index];
      const Nanos took = times.of(running);
      add(now.count, took.count, "nanoseconds");
      out.time[static_cast<std::size_t>(running.phase)] += took;
      digest.add(took.count);
      continue;
    }
    const StepStorage& storage = step.storages[at.index];
    const Bytes change = at.what == Do::alloc ? storage.bytes : Bytes{} - storage.bytes;
    digest.add(change.count);
    digest.add(static_cast<std::int64_t>(storage.category));
    add(level.count, change.count, "live bytes");
    out.net[static_cast<std::size_t>(storage.category)] += change;
    ++out.events;
    if (level <= out.stretch.crest) continue;
    out.stretch.crest = level;
    out.stretch.where = out.stretch.length;
    out.at_crest = out.net;
    out.before_crest = now;
    out.crest_op = at.op;
  }
  out.stretch.net = level;
  for (std::size_t k = range.first_op; k < range.end_op; ++k) {
    add(out.flops[static_cast<std::size_t>(step.ops[k].phase)], step.ops[k].flops, "FLOPs of one part");
    digest.add(step.ops[k].flops);
  }
  out.ops = range.end_op - range.first_op;
  out.digest = digest.value();
  return out;
}

}  // namespace tidemark
