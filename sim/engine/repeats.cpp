#include "tidemark/engine/repeats.hpp"

#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

void add_copies(const Piece& piece, std::uint64_t times, Repeats::Sums& out) {
  const auto n = static_cast<std::int64_t>(times);
  for (std::size_t c = 0; c < out.net.size(); ++c) out.net[c] += n * piece.net[c];
  for (std::size_t p = 0; p < out.time.size(); ++p) {
    out.time[p] += Int128{n} * piece.time[p].count;
    out.flops[p] += Int128{n} * piece.flops[p];
  }
  out.events += times * piece.events;
  out.ops += times * piece.ops;
}

}  // namespace

Repeats::Repeats() {
  nodes_.reserve(64);
  open(1);
}

std::size_t Repeats::open(std::uint64_t times, std::int64_t stride) {
  check(times > 0, "a group stands at least once");
  open_.push_back(nodes_.size());
  nodes_.push_back({.piece = nullptr, .times = times, .block = 0, .move = stride});
  return nodes_.size() - 1;
}

void Repeats::close() {
  Node& group = nodes_[open_.back()];
  group.end = nodes_.size();
  for (std::size_t child = open_.back() + 1; child < group.end; child = nodes_[child].end)
    group.once = compose(group.once, nodes_[child].all);
  group.all = power(group.once, group.times);
  open_.pop_back();
}

void Repeats::add(const Piece& piece, std::uint64_t times, std::int64_t block, std::int64_t direction) {
  if (times == 0) return;
  nodes_.push_back({.piece = &piece,
                    .times = times,
                    .block = block,
                    .move = direction,
                    .end = nodes_.size() + 1,
                    .once = piece.stretch,
                    .all = power(piece.stretch, times)});
}

void Repeats::finish() {
  check(open_.size() == 1, "a group is still open");
  close();
}

Int128 Repeats::Sums::total_time() const {
  Int128 total = 0;
  for (const Int128 phase : time) total += phase;
  return total;
}

void Repeats::add_sums(std::size_t node, std::uint64_t times, Sums& out) const {
  if (times == 0) return;
  const Node& at = nodes_[node];
  times *= at.times;
  if (at.piece == nullptr) {
    for (std::size_t child = node + 1; child < at.end; child = nodes_[child].end) add_sums(child, times, out);
    return;
  }
  add_copies(*at.piece, times, out);
}

Repeats::Sums Repeats::sums(std::size_t group) const {
  Sums out;
  for (std::size_t child = group + 1; child < nodes_[group].end; child = nodes_[child].end) add_sums(child, 1, out);
  return out;
}

/// `where` counts instructions from the node's start to the crest, the crest's included.
void Repeats::find(std::size_t node, std::size_t where, std::int64_t shift, Crest& out) const {
  const Node& at = nodes_[node];
  const std::size_t turn = (where - 1) / at.once.length;
  where -= turn * at.once.length;
  const auto moved = static_cast<std::int64_t>(turn) * at.move;
  if (at.piece != nullptr) {
    out.piece = at.piece;
    out.block = at.block + moved + shift;
    add_copies(*at.piece, turn, out.before);
    return;
  }
  if (out.group == 0) {
    out.group = node;
    out.turn = turn;
  }
  std::size_t child = node + 1;
  for (; child < at.end; child = nodes_[child].end) add_sums(child, turn, out.before);
  for (child = node + 1; where > nodes_[child].all.length; child = nodes_[child].end) {
    add_sums(child, 1, out.before);
    where -= nodes_[child].all.length;
  }
  find(child, where, shift + moved, out);
}

std::optional<Repeats::Crest> Repeats::crest() const {
  const std::size_t where = nodes_.front().all.where;
  if (where == 0) return std::nullopt;
  Crest out;
  find(0, where, 0, out);
  return out;
}

std::optional<Bytes> Repeats::before_last(std::size_t node, const Piece& piece) const {
  const Node& at = nodes_[node];
  const Bytes turns_before = static_cast<std::int64_t>(at.times - 1) * at.once.net;
  if (at.piece != nullptr) return at.piece == &piece ? std::optional(turns_before) : std::nullopt;
  std::optional<Bytes> found;
  Bytes before = turns_before;
  for (std::size_t child = node + 1; child < at.end; child = nodes_[child].end) {
    if (const auto below = before_last(child, piece)) found = before + *below;
    before += nodes_[child].all.net;
  }
  return found;
}

Bytes Repeats::level_before_last(const Piece& piece) const {
  const auto found = before_last(0, piece);
  check(found.has_value(), "the piece does not stand in this");
  return *found;
}

}  // namespace tidemark
