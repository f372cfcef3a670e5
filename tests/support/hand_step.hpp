/// How does a test write a Step by hand, and read its timeline at a glance?
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tidemark/engine/timeline.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark::test {

/// Storages by name; instructions go to the op opened last.
class HandStep {
 public:
  Step step;

  /// Live before the first op.
  HandStep& initial(const std::string& name, std::int64_t bytes, int rank = 0) {
    step.initial.push_back(storage(name, bytes, rank));
    step.storages.back().outlives_step = true;
    return *this;
  }
  /// Opens an op that takes `time` ns on `stream`.
  HandStep& op(const std::string& name, std::int64_t time, Stream stream = Stream::compute, int rank = 0) {
    StepOp op;
    op.name = step.names.id(name);
    op.stream = stream;
    op.rank = static_cast<std::int16_t>(rank);
    op.has_time = true;
    op.time = Nanos{time};
    op.read_begin = op.read_end = static_cast<std::uint32_t>(step.reads.size());
    step.ops.push_back(op);
    return *this;
  }
  HandStep& alloc(const std::string& name, std::int64_t bytes) {
    const StorageId id = storage(name, bytes, step.ops.back().rank);
    return add(Do::alloc, step.ops.back().stream, id);
  }
  HandStep& free(const std::string& name) { return add(Do::free, step.ops.back().stream, ids_.at(name)); }
  /// The open op's kernel reads `names`.
  HandStep& run(const std::vector<std::string>& names = {}) { return kernel(Do::compute, names); }
  HandStep& copy(const std::vector<std::string>& names = {}) { return kernel(Do::copy, names); }
  HandStep& record(std::uint32_t event) { return add(Do::record, step.ops.back().stream, event); }
  HandStep& wait(std::uint32_t event) { return add(Do::wait, step.ops.back().stream, event); }
  /// Of the op opened last.
  HandStep& phase(Phase phase) {
    step.ops.back().phase = phase;
    return *this;
  }
  HandStep& at_step(int number) {
    step.ops.back().step = static_cast<std::int16_t>(number);
    step.steps = std::max(step.steps, number + 1);
    return *this;
  }
  HandStep& flops(std::int64_t matmul, std::int64_t other = 0) {
    step.ops.back().flops = matmul;
    step.ops.back().other_flops = other;
    return *this;
  }
  HandStep& op_layer(const std::string& name) {
    step.ops.back().layer = layer_id(name);
    return *this;
  }
  /// Of the storage made last.
  HandStep& is(Category category) {
    step.storages.back().category = category;
    return *this;
  }
  HandStep& layer(const std::string& name) {
    step.storages.back().layer = layer_id(name);
    return *this;
  }
  StorageId id(const std::string& name) const { return ids_.at(name); }

 private:
  std::int32_t layer_id(const std::string& name) {
    const auto found = std::ranges::find(step.layers, name);
    const auto id = static_cast<std::int32_t>(found - step.layers.begin());
    if (found == step.layers.end()) step.layers.push_back(name);
    return id;
  }
  HandStep& kernel(Do what, const std::vector<std::string>& names) {
    for (const std::string& name : names) step.reads.push_back(ids_.at(name));
    step.ops.back().read_end = static_cast<std::uint32_t>(step.reads.size());
    return add(what, step.ops.back().stream, static_cast<std::uint32_t>(step.ops.size() - 1));
  }
  HandStep& add(Do what, Stream stream, std::uint32_t index) {
    if (what == Do::record || what == Do::wait) step.events = std::max(step.events, index + 1);
    step.instructions.push_back({what, stream, static_cast<OpId>(step.ops.size() - 1), index});
    return *this;
  }
  StorageId storage(const std::string& name, std::int64_t bytes, int rank) {
    const auto id = static_cast<StorageId>(step.storages.size());
    ids_[name] = id;
    step.storages.push_back(
        {.bytes = Bytes{bytes}, .name = step.names.id(name), .rank = static_cast<std::int16_t>(rank)});
    step.ranks = std::max(step.ranks, rank + 1);
    return id;
  }
  std::map<std::string, StorageId> ids_;
};

inline std::string lines_of(const std::vector<std::string>& rows) {
  std::string all;
  for (const std::string& row : rows) all += "\n  " + row;
  return all;
}

/// "10 +x 5": at 10 ns x was allocated, and 5 bytes were live then; an event a row.
inline std::string shown(const Timeline& timeline, const Step& step) {
  std::vector<std::string> rows;
  for (const MemoryEvent& event : timeline.events)
    rows.push_back(to_string(event.time) + (event.is_alloc() ? " +" : " -") +
                   step.names[step.storages[event.storage].name] + " " + to_string(event.live));
  return lines_of(rows);
}

/// "A 0..10 peak 5 after 3", an op a row.
inline std::string shown_ops(const Timeline& timeline, const Step& step) {
  std::vector<std::string> rows;
  for (std::size_t i = 0; i < timeline.ops.size(); ++i) {
    const OpSpan& span = timeline.ops[i];
    rows.push_back(step.names[step.ops[i].name] + " " + to_string(span.start) + ".." + to_string(span.end) + " peak " +
                   to_string(span.peak) + " after " + to_string(span.after));
  }
  return lines_of(rows);
}

}  // namespace tidemark::test
