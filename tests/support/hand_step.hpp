/// How does a test write a Step by hand, and read its timeline at a glance?
#pragma once

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
  StorageId id(const std::string& name) const { return ids_.at(name); }

 private:
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

/// "10 +x 5": at 10 ns x was allocated, and 5 bytes were live then.
inline std::vector<std::string> shown(const Timeline& timeline, const Step& step) {
  std::vector<std::string> rows;
  for (const MemoryEvent& event : timeline.events)
    rows.push_back(to_string(event.time) + (event.is_alloc() ? " +" : " -") +
                   step.names[step.storages[event.storage].name] + " " + to_string(event.live));
  return rows;
}

/// "A 0..10 peak 5 after 3", an op a row.
inline std::vector<std::string> shown_ops(const Timeline& timeline, const Step& step) {
  std::vector<std::string> rows;
  for (std::size_t i = 0; i < timeline.ops.size(); ++i) {
    const OpSpan& span = timeline.ops[i];
    rows.push_back(step.names[step.ops[i].name] + " " + to_string(span.start) + ".." + to_string(span.end) + " peak " +
                   to_string(span.peak) + " after " + to_string(span.after));
  }
  return rows;
}

}  // namespace tidemark::test
