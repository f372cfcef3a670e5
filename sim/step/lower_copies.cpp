#include <algorithm>
#include <utility>

#include "program_lowering.hpp"
#include "tidemark/base/errors.hpp"

namespace tidemark {

void ProgramLowering::emit_copies_before(std::size_t turn_index) {
  if (turn_index == 0) next_copy_ = 0;
  for (; next_copy_ < schedule_.copies.size() && schedule_.copies[next_copy_].before == turn_index; ++next_copy_) {
    const CopyTurn& copy = schedule_.copies[next_copy_];
    if (copy.action == Action::copy_out) copy_out(copy);
    if (copy.action == Action::copy_in) copy_in(copy);
    if (copy.action == Action::copy_wait) copy_wait(copy);
  }
}

StorageId& ProgramLowering::slot_of(const Away& away) {
  switch (away.from) {
    case Away::From::node:
      return nodes_[static_cast<std::size_t>(away.owner)].saved[away.slot];
    case Away::From::name:
      return value(away.owner);
    case Away::From::region:
      break;
  }
  return region_state(away.owner).inputs[away.slot];
}

/// Storages that move, in the order in which they were saved. What is never freed (parameters, the batch) and what is
/// small stays.
std::vector<ProgramLowering::Departure> ProgramLowering::departures(const CopyTurn& copy) {
  std::vector<Departure> out;
  const auto add = [&](std::size_t k, const Away& away) {
    const StorageId id = slot_of(away);
    if (id == none || step_.storages[id].outlives_step || step_.storages[id].bytes < copies_.min_size ||
        step_.storages[id].bytes.count == 0)
      return;
    auto found = std::ranges::find(out, id, &Departure::id);
    if (found == out.end()) found = out.insert(out.end(), Departure{id, {}});
    found->holders.emplace_back(k, away);
  };
  for (const OpIndex op : copy.ops) {
    const auto k = static_cast<std::size_t>(op);
    for (std::size_t i = 0; i < nodes_[k].saved.size(); ++i) add(k, {Away::From::node, op, i, 0});
    for (const TensorId t : copy.values) {
      const auto& inputs = op_at(k).inputs;
      const bool first =
          std::ranges::find(inputs, t) != inputs.end() && std::ranges::none_of(copy.ops, [&](OpIndex other) {
            const auto& before = op_at(static_cast<std::size_t>(other)).inputs;
            return other < op && std::ranges::find(before, t) != before.end();
          });
      if (!first) continue;
      add(k, {Away::From::name, t, 0, 0});
      for (std::size_t r = 0; carried_out() && r < schedule_.regions.size(); ++r)
        for (std::size_t i = 0; i < region_states_[r].inputs.size(); ++i)
          if (schedule_.regions[r].inputs[i] == t) add(k, {Away::From::region, static_cast<std::int32_t>(r), i, 0});
    }
  }
  return out;
}

/// The holders let go; the device's storage goes with the last of them, when the copy has ended or somebody waits for
/// it.
void ProgramLowering::copy_out(const CopyTurn& copy) {
  for (const Departure& leaving : departures(copy)) {
    const StepStorage storage = step_.storages[leaving.id];
    auto [found, is_new] = copy_of_.emplace(leaving.id, host_copies_.size());
    if (is_new) {
      const std::string name = step_.names[storage.name];
      begin_copy(op_at(leaving.holders.front().first), Stream::copy_out, {name, storage.bytes}, ".to_host");
      emit_.copy({leaving.id});
      const std::uint32_t copied = emit_.record(Stream::copy_out);
      emit_.read_until(leaving.id, Stream::copy_out, copied);
      host_copies_.push_back({.copied = copied, .block = step_.host.size()});
      step_.host.push_back({storage.name, storage.bytes, static_cast<OpId>(step_.ops.size() - 1), no_id});
      mark_activation(leaving.id);
      if (copies_.free_at_wait) {
        host_copies_.back().device = leaving.id;
        emit_.hold(leaving.id);
      }
    }
    HostCopy& made = host_copies_[found->second];
    for (auto [k, away] : leaving.holders) {
      away.copy = found->second;
      ++made.owners;
      slot_of(away) = none;
      away_[k].push_back(away);
      emit_.release(leaving.id);
    }
  }
}

void ProgramLowering::copy_wait(const CopyTurn& copy) {
  for (const OpIndex op : copy.ops)
    for (const Away& away : away_[static_cast<std::size_t>(op)]) {
      HostCopy& made = host_copies_[away.copy];
      if (made.device == none) continue;
      emit_.wait(made.copied, Stream::compute);
      emit_.release(std::exchange(made.device, none));
    }
}

/// Into a storage of its own, made when the host asks for it: how long before it is read is the prefetch.
void ProgramLowering::bring_back(HostCopy& copy, const ProgramOp& op) {
  HostBlock& block = step_.host[copy.block];
  const std::string name = step_.names[block.name];
  begin_copy(op, Stream::copy_in, {name, block.bytes}, ".to_device");
  copy.back = emit_.alloc(name, block.bytes, Category::activation, op.layer);
  emit_.wait(copy.copied, Stream::copy_in);
  emit_.copy({copy.back});
  emit_.written_at(copy.back, Stream::copy_in, emit_.record(Stream::copy_in));
  block.back = static_cast<OpId>(step_.ops.size() - 1);
}

void ProgramLowering::copy_in(const CopyTurn& copy) {
  for (auto op = copy.ops.rbegin(); op != copy.ops.rend(); ++op) {  // as backward will read
    std::vector<Away> back = std::exchange(away_[static_cast<std::size_t>(*op)], {});
    std::ranges::reverse(back);
    for (const Away& away : back) {
      HostCopy& made = host_copies_[away.copy];
      const bool never_left = made.device != none;  // nobody has waited for its copy
      const bool is_here = never_left || (made.back != none && emit_.holds(made.back) > 0);
      if (!is_here) bring_back(made, op_at(static_cast<std::size_t>(*op)));
      const StorageId id = never_left ? made.device : made.back;
      if (is_here) emit_.hold(id);
      slot_of(away) = id;
      if (--made.owners > 0 || !never_left) continue;
      emit_.release(std::exchange(made.device, none));
      step_.host[made.block].back = static_cast<OpId>(step_.ops.size() - 1);
    }
  }
}

/// The plan was walked before; this knows single tensors.
void ProgramLowering::check_is_here(std::size_t k, bool backward) const {
  if (away_.empty() || away_[k].empty()) return;
  throw InputError("the plan runs '" + op_at(k).name + "' " + (backward ? "backward" : "again") +
                   " while what it reads is on the host; expected a copy_in before it");
}

void ProgramLowering::end_copies() {
  for (const HostCopy& made : host_copies_)
    check(made.owners == 0 && made.device == none, "something that was copied to the host never came back");
  host_copies_.clear();
  copy_of_.clear();
}

}  // namespace tidemark
