#include "tidemark/report/csv.hpp"

#include <fmt/format.h>

#include <array>
#include <concepts>
#include <span>

#include "tidemark/base/vocabulary.hpp"
#include "tidemark/report/moment.hpp"

namespace tidemark {
namespace {

constexpr std::size_t flush_size = std::size_t{1} << 16;

/// Appends the cells of rows and hands the text on in pieces.
class Rows {
 public:
  explicit Rows(const TextSink& sink) : sink_(sink) {}

  void text(std::string_view value) { buffer_.append(value.data(), value.data() + value.size()); }
  template <std::integral Number>
  void number(Number value) {
    const fmt::format_int digits(value);
    text({digits.data(), digits.size()});
  }
  void name(std::string_view value) {
    if (value.find_first_of(",\"\r\n") == std::string_view::npos)
      text(value);
    else
      text(csv_field(value));
  }
  void end_of_cell(bool last_of_row) {
    buffer_.push_back(last_of_row ? '\n' : ',');
    if (last_of_row && buffer_.size() >= flush_size) flush();
  }
  void flush() {
    sink_({buffer_.data(), buffer_.size()});
    buffer_.clear();
  }

 private:
  const TextSink& sink_;
  fmt::memory_buffer buffer_;
};

/// A column's name and its value stand together, so that header and rows cannot part.
template <class Row>
struct Column {
  std::string_view name;
  void (*write)(const Row&, Rows&);
};

template <class Row>
void write_header(std::span<const Column<Row>> columns, Rows& rows) {
  for (const Column<Row>& column : columns) {
    rows.text(column.name);
    rows.end_of_cell(&column == &columns.back());
  }
}

template <class Row>
void write_row(std::span<const Column<Row>> columns, const Row& row, Rows& rows) {
  for (const Column<Row>& column : columns) {
    column.write(row, rows);
    rows.end_of_cell(&column == &columns.back());
  }
}

struct EventRow {
  const Step& step;
  const Timeline& timeline;
  std::size_t seq;
  const MemoryEvent& event;
  const StepStorage& storage;
  const StepOp* op;  // none for what is alive at the start
  int at_step() const { return op != nullptr ? op->step : 0; }
  int rank() const { return storage.rank; }
  Stream stream() const { return op != nullptr ? op->stream : Stream::compute; }
  Phase phase() const { return op != nullptr ? op->phase : Phase::initial; }
};

/// An allocator's figure for the event; an empty cell when only live bytes were counted.
void optional_bytes(const std::vector<Bytes>& column, std::size_t seq, Rows& out) {
  if (seq < column.size()) out.number(column[seq].count);
}

constexpr std::array<Column<EventRow>, 17> event_columns = {{
    {"seq", [](const EventRow& r, Rows& out) { out.number(r.seq); }},
    {"time_ns", [](const EventRow& r, Rows& out) { out.number(r.event.time.count); }},
    {"step", [](const EventRow& r, Rows& out) { out.number(r.at_step()); }},
    {"rank", [](const EventRow& r, Rows& out) { out.number(r.rank()); }},
    {"stream", [](const EventRow& r, Rows& out) { out.text(to_string(r.stream())); }},
    {"event", [](const EventRow& r, Rows& out) { out.text(r.event.is_alloc() ? "alloc" : "free"); }},
    {"op", [](const EventRow& r, Rows& out) { out.name(r.op != nullptr ? r.step.names[r.op->name] : ""); }},
    {"phase", [](const EventRow& r, Rows& out) { out.text(to_string(r.phase())); }},
    {"tensor", [](const EventRow& r, Rows& out) { out.name(r.step.names[r.storage.name]); }},
    {"category", [](const EventRow& r, Rows& out) { out.text(to_string(r.storage.category)); }},
    {"bytes", [](const EventRow& r, Rows& out) { out.number(r.storage.bytes.count); }},
    {"live_bytes", [](const EventRow& r, Rows& out) { out.number(r.event.live.count); }},
    {"allocated_bytes",
     [](const EventRow& r, Rows& out) { optional_bytes(r.timeline.allocator.allocated, r.seq, out); }},
    {"reserved_bytes", [](const EventRow& r, Rows& out) { optional_bytes(r.timeline.allocator.reserved, r.seq, out); }},
    {"id", [](const EventRow& r, Rows& out) { out.number(r.event.storage); }},
    {"active_bytes", [](const EventRow& r, Rows& out) { optional_bytes(r.timeline.allocator.active, r.seq, out); }},
    {"inactive_split_bytes",
     [](const EventRow& r, Rows& out) { optional_bytes(r.timeline.allocator.inactive_split, r.seq, out); }},
}};

/// The last two columns stand there with an allocator model only.
std::span<const Column<EventRow>> event_columns_of(const Timeline& timeline) {
  const std::span<const Column<EventRow>> all(event_columns);
  return timeline.allocator.active.empty() ? all.first(all.size() - 2) : all;
}

struct OpRow {
  const Step& step;
  std::size_t seq;
  const StepOp& op;
  const OpSpan& span;
};

constexpr std::array<Column<OpRow>, 13> op_columns = {{
    {"seq", [](const OpRow& r, Rows& out) { out.number(r.seq); }},
    {"start_ns", [](const OpRow& r, Rows& out) { out.number(r.span.start.count); }},
    {"end_ns", [](const OpRow& r, Rows& out) { out.number(r.span.end.count); }},
    {"step", [](const OpRow& r, Rows& out) { out.number(r.op.step); }},
    {"rank", [](const OpRow& r, Rows& out) { out.number(r.op.rank); }},
    {"stream", [](const OpRow& r, Rows& out) { out.text(to_string(r.op.stream)); }},
    {"op", [](const OpRow& r, Rows& out) { out.name(r.step.names[r.op.name]); }},
    {"layer", [](const OpRow& r, Rows& out) { out.name(layer_name(r.step, r.op.layer)); }},
    {"phase", [](const OpRow& r, Rows& out) { out.text(to_string(r.op.phase)); }},
    {"flops", [](const OpRow& r, Rows& out) { out.number(r.op.flops); }},
    {"bytes_moved", [](const OpRow& r, Rows& out) { out.number(r.op.moved.count); }},
    {"peak_bytes", [](const OpRow& r, Rows& out) { out.number(r.span.peak.count); }},
    {"end_bytes", [](const OpRow& r, Rows& out) { out.number(r.span.after.count); }},
}};

}  // namespace

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out.push_back('"');
    out.push_back(c);
  }
  out.push_back('"');
  return out;
}

void write_timeline_csv(const Step& step, const Timeline& timeline, const TextSink& sink) {
  Rows rows(sink);
  const auto columns = event_columns_of(timeline);
  write_header(columns, rows);
  for (std::size_t seq = 0; seq < timeline.events.size(); ++seq) {
    const MemoryEvent& event = timeline.events[seq];
    const StepOp* op = event.op() == no_id ? nullptr : &step.ops[event.op()];
    write_row<EventRow>(columns, {step, timeline, seq, event, step.storages[event.storage], op}, rows);
  }
  rows.flush();
}

void write_ops_csv(const Step& step, const Timeline& timeline, const TextSink& sink) {
  Rows rows(sink);
  const std::span<const Column<OpRow>> columns(op_columns);
  write_header(columns, rows);
  for (std::size_t seq = 0; seq < step.ops.size(); ++seq)
    if (timeline.ops[seq].start != OpSpan::never_ran)
      write_row<OpRow>(columns, {step, seq, step.ops[seq], timeline.ops[seq]}, rows);
  rows.flush();
}

}  // namespace tidemark
