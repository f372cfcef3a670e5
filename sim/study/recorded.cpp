#include "tidemark/study/recorded.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

class Recorder {
 public:
  void take(const TimelineRow& row) {
    const StorageId storage = row.is_alloc ? born(row) : dead(row);
    const OpId op = op_of(row);
    MemoryEvent event{.time = row.time, .live = row.live, .storage = storage};
    event.op_and_kind = MemoryEvent::pack(op == no_id ? MemoryEvent::no_op : op, row.is_alloc);
    Timeline& timeline = out_.timeline;
    if (row.live > timeline.peak) {
      timeline.peak = row.live;
      timeline.peak_event = timeline.events.size();
    }
    timeline.end = std::max(timeline.end, row.time);
    timeline.events.push_back(event);
    out_.step.steps = std::max(out_.step.steps, row.step + 1);
    out_.step.ranks = std::max(out_.step.ranks, row.rank + 1);
  }

  RecordedRun take_all() { return std::move(out_); }

 private:
  StorageId born(const TimelineRow& row) {
    Step& step = out_.step;
    const auto id = static_cast<StorageId>(step.storages.size());
    step.storages.push_back({.bytes = row.bytes,
                             .name = step.names.id(row.tensor),
                             .category = row.category.value_or(Category::temporary),
                             .rank = static_cast<std::int16_t>(row.rank)});
    live_[{row.rank, row.id}] = id;
    return id;
  }

  StorageId dead(const TimelineRow& row) {
    const auto found = live_.find({row.rank, row.id});
    check(found != live_.end(), "a checked row frees what is live");
    const StorageId id = found->second;
    live_.erase(found);
    return id;
  }

  OpId op_of(const TimelineRow& row) {
    if (row.phase == Phase::initial && row.op.empty()) return no_id;
    Step& step = out_.step;
    const NameId name = step.names.id(row.phase ? row.op : "an op that was not recorded");
    OpId& last = last_.try_emplace(row.rank, no_id).first->second;
    if (last != no_id) {
      const StepOp& op = step.ops[last];
      if (op.name == name && op.phase == row.phase.value_or(Phase::initial) && op.step == row.step &&
          op.stream == row.stream) {
        extend(out_.timeline.ops[last], row);
        return last;
      }
    }
    last = static_cast<OpId>(step.ops.size());
    StepOp op;
    op.name = name;
    op.phase = row.phase.value_or(Phase::initial);
    op.stream = row.stream;
    op.step = static_cast<std::int16_t>(row.step);
    op.rank = static_cast<std::int16_t>(row.rank);
    step.ops.push_back(op);
    out_.timeline.ops.push_back({.start = row.time, .end = row.time, .peak = row.live, .after = row.live});
    return last;
  }
  static void extend(OpSpan& span, const TimelineRow& row) {
    span.end = row.time;
    span.peak = std::max(span.peak, row.live);
    span.after = row.live;
  }

  RecordedRun out_;
  std::map<std::pair<int, std::uint64_t>, StorageId> live_;  // by rank and id
  std::map<int, OpId> last_;                                 // by rank
};

}  // namespace

RecordedRun recorded_run(const Side& side) {
  Recorder recorder;
  while (const std::optional<TimelineRow> row = side.next()) recorder.take(*row);
  return recorder.take_all();
}

}  // namespace tidemark
