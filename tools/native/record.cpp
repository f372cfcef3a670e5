#include "record.hpp"

#include <algorithm>
#include <ostream>

namespace tidemark::native {

std::string Name::text() const {
  std::string out(scope);
  if (!scope.empty() && !part.empty()) out += '.';
  out += part;
  out += suffix;
  return out;
}

void Record::clear() {
  storages_.clear();
  ops_.clear();
  events_.clear();
  step_ = 0;
}

std::int64_t Record::now_ns() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start_).count();
}

void Record::begin_op(Name name, std::string_view layer, Phase phase, std::int64_t live_bytes) {
  const std::int64_t now = now_ns();
  ops_.push_back({name, layer, phase, step_, now, now, 0, 0, live_bytes});
}

void Record::touch_op() { ops_.back().end_ns = now_ns(); }

StorageNumber Record::allocated(Name name, std::int64_t bytes, Category category, std::int64_t live_bytes) {
  const auto number = static_cast<StorageNumber>(storages_.size());
  storages_.push_back({name, bytes, category});
  add_event(number, true, live_bytes);
  return number;
}

void Record::freed(StorageNumber storage, std::int64_t live_bytes) { add_event(storage, false, live_bytes); }

void Record::add_event(StorageNumber storage, bool is_alloc, std::int64_t live_bytes) {
  const bool initial = ops_.empty();
  const OpNumber op = initial ? no_op : static_cast<OpNumber>(ops_.size() - 1);
  events_.push_back({initial ? 0 : now_ns(), live_bytes, storage, op, is_alloc});
}

std::int64_t Record::flops() const {
  std::int64_t sum = 0;
  for (const OpRecord& op : ops_) sum += op.flops;
  return sum;
}

std::vector<std::int64_t> Record::step_times_ns() const {
  std::vector<std::int64_t> starts, times;
  for (const OpRecord& op : ops_) {
    const auto step = static_cast<std::size_t>(op.step);
    if (step == times.size()) {
      starts.push_back(op.start_ns);
      times.push_back(0);
    }
    times[step] = op.end_ns - starts[step];
  }
  return times;
}

void Record::write_timeline(std::ostream& out) const {
  out << "seq,time_ns,step,rank,stream,event,op,phase,tensor,category,bytes,live_bytes,allocated_bytes,reserved_bytes,"
         "id\n";
  for (std::size_t seq = 0; seq < events_.size(); ++seq) {
    const EventRecord& event = events_[seq];
    const StorageRecord& of = storages_[event.storage];
    OpRecord at;
    at.phase = Phase::initial;
    if (event.op != no_op) at = ops_[event.op];
    out << seq << ',' << event.time_ns << ',' << at.step << ",0,compute," << (event.is_alloc ? "alloc" : "free") << ','
        << at.name.text() << ',' << phase_names[static_cast<std::size_t>(at.phase)] << ',' << of.name.text() << ','
        << category_names[static_cast<std::size_t>(of.category)] << ',' << of.bytes << ',' << event.live_bytes << ",,,"
        << event.storage << '\n';
  }
}

void Record::write_ops(std::ostream& out) const {
  out << "seq,start_ns,end_ns,step,rank,stream,op,layer,phase,flops,bytes_moved,peak_bytes,end_bytes\n";
  std::size_t event = 0;
  while (event < events_.size() && events_[event].op == no_op) ++event;
  for (std::size_t seq = 0; seq < ops_.size(); ++seq) {
    const OpRecord& op = ops_[seq];
    std::int64_t peak = op.live_before, end = op.live_before;
    for (; event < events_.size() && events_[event].op == seq; ++event) {
      end = events_[event].live_bytes;
      peak = std::max(peak, end);
    }
    out << seq << ',' << op.start_ns << ',' << op.end_ns << ',' << op.step << ",0,compute," << op.name.text() << ','
        << op.layer << ',' << phase_names[static_cast<std::size_t>(op.phase)] << ',' << op.flops << ','
        << op.moved_bytes << ',' << peak << ',' << end << '\n';
  }
}

}  // namespace tidemark::native
