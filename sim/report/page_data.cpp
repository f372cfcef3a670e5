#include "page_data.hpp"

#include <numeric>
#include <vector>

#include "columns.hpp"
#include "numbered_words.hpp"
#include "page_file.hpp"
#include "text_buffer.hpp"
#include "tidemark/report/holders.hpp"
#include "tidemark/report/json.hpp"
#include "tidemark/report/peak.hpp"

namespace tidemark {
namespace {

/// Of the rank that reaches the peak: its ops in order, its storages in the order of their births, its events.
struct Selection {
  std::vector<OpId> ops;
  std::vector<StorageId> storages;
  std::vector<std::size_t> events;
  std::vector<std::int64_t> op_number, storage_number;
  std::vector<std::uint32_t> events_before;  // how many of its events come before this one

  Selection(const Step& step, const Timeline& timeline) : storage_number(step.storages.size()) {
    const std::vector<MemoryEvent>& all = timeline.events;
    const std::int16_t rank = peak_rank(step, timeline);
    for (OpId id = 0; id < step.ops.size(); ++id) {
      op_number.push_back(static_cast<std::int64_t>(ops.size()));
      if (step.ops[id].rank == rank) ops.push_back(id);
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      events_before.push_back(static_cast<std::uint32_t>(events.size()));
      if (step.storages[all[i].storage].rank != rank) continue;
      events.push_back(i);
      if (!all[i].is_alloc()) continue;
      storage_number[all[i].storage] = static_cast<std::int64_t>(storages.size());
      storages.push_back(all[i].storage);
    }
    events_before.push_back(static_cast<std::uint32_t>(events.size()));
  }
};

class DataWriter {
 public:
  explicit DataWriter(const PageRun& run)
      : step_(run.step),
        timeline_(run.timeline),
        chosen_(run.step, run.timeline),
        name_words_(run.step.names.size(), -1),
        layer_words_(run.step.layers.size(), -1) {}

  std::string write(const PageRun& run) {
    ops();
    storages();
    holder_columns();
    events();
    columns_.add("words.stem", words_.stem_of(), [](NameId stem) { return stem; });
    columns_.add("words.number", words_.number_of(), [](std::int64_t number) { return number; });
    std::string out;
    add_part(out, head(run));
    add_part(out, columns_.bytes());
    return out;
  }

 private:
  std::int64_t name_word(NameId name) {
    if (name_words_[name] < 0) name_words_[name] = words_.add(step_.names[name]);
    return name_words_[name];
  }
  std::int64_t layer_word(std::int32_t layer) {
    if (layer < 0) return -1;
    std::int64_t& word = layer_words_[static_cast<std::size_t>(layer)];
    if (word < 0) word = words_.add(step_.layers[static_cast<std::size_t>(layer)]);
    return word;
  }

  void ops() {
    const auto column = [&](std::string_view name, auto get) {
      columns_.add(name, chosen_.ops, [&](OpId id) { return get(step_.ops[id]); });
    };
    column("ops.name", [&](const StepOp& op) { return name_word(op.name); });
    column("ops.layer", [&](const StepOp& op) { return layer_word(op.layer); });
    column("ops.phase", [](const StepOp& op) { return static_cast<int>(op.phase); });
    column("ops.stream", [](const StepOp& op) { return static_cast<int>(op.stream); });
    column("ops.step", [](const StepOp& op) { return op.step; });
    columns_.add("ops.start", chosen_.ops, [&](OpId id) { return timeline_.ops[id].start.count; });
    columns_.add("ops.end", chosen_.ops, [&](OpId id) { return timeline_.ops[id].end.count; });
  }

  void storages() {
    const auto column = [&](std::string_view name, auto get) {
      columns_.add(name, chosen_.storages, [&](StorageId id) { return get(step_.storages[id]); });
    };
    column("storages.name", [&](const StepStorage& storage) { return name_word(storage.name); });
    column("storages.layer", [&](const StepStorage& storage) { return layer_word(storage.layer); });
    column("storages.category", [](const StepStorage& storage) { return static_cast<int>(storage.category); });
    column("storages.bytes", [](const StepStorage& storage) { return storage.bytes.count; });
  }

  void holder_columns() {
    const Holders all = holders(step_, timeline_);
    std::vector<Holder> list;
    std::vector<std::uint32_t> counts;
    for (const StorageId id : chosen_.storages) {
      counts.push_back(all.first[id + 1] - all.first[id]);
      for (std::uint32_t i = all.first[id]; i < all.first[id + 1]; ++i) list.push_back(all.list[i]);
    }
    columns_.add("holders.count", counts, [](std::uint32_t count) { return count; });
    columns_.add("holders.from", list, [&](const Holder& holder) { return chosen_.events_before[holder.from_event]; });
    columns_.add("holders.hold", list, [](const Holder& holder) { return static_cast<int>(holder.reason.hold); });
    columns_.add("holders.op", list, [&](const Holder& holder) { return op_number(holder.reason.op); });
  }
  std::int64_t op_number(OpId op) const { return op == no_id ? -1 : chosen_.op_number[op]; }

  void events() {
    columns_.add("events.time", chosen_.events, [&](std::size_t i) { return timeline_.events[i].time.count; });
    // An alloc is of the next storage: 0. A free says how many storages ago its own was born, from 1.
    std::int64_t born = 0;
    columns_.add("events.what", chosen_.events, [&](std::size_t i) {
      const MemoryEvent& event = timeline_.events[i];
      if (event.is_alloc()) return ++born, std::int64_t{0};
      return born - chosen_.storage_number[event.storage];
    });
    columns_.add("events.op", chosen_.events, [&](std::size_t i) { return op_number(timeline_.events[i].op()); });
  }

  /// What is not a column.
  std::string head(const PageRun& run) const {
    std::string text;
    const TextSink sink = [&](std::string_view piece) { text += piece; };
    TextBuffer out(sink);
    const auto list = [&](std::string_view key, const auto& range, auto write) {
      out.text(",\n\"").text(key).text("\":[");
      bool first = true;
      for (const auto& item : range) {
        if (!first) out.text(",");
        first = false;
        write(item);
      }
      out.text("]");
    };
    const auto string = [&](std::string_view word) { out.string(word); };
    out.text("{\"label\":").string(run.name);
    out.text(",\n\"measured\":").text(run.is_measured ? "true" : "false");
    out.text(",\n\"summary\":").text(summary_json(run.summary));
    out.text(",\n\"limit_name\":").string(run.summary.limit_name);
    out.text(",\n\"end\":").number(timeline_.end.count);
    const bool empty = timeline_.events.empty();
    out.text(",\n\"peak_event\":").number(empty ? 0U : chosen_.events_before[timeline_.peak_event]);
    list("categories", category_names, string);
    list("phases", phase_names, string);
    list("holds", hold_words, [&](const HoldWords& words) {
      out.text("[").string(words.text).text(",").number(static_cast<int>(words.subject)).text("]");
    });
    list("stems", stem_numbers(), [&](NameId id) { out.string(words_.stems()[id]); });
    list("columns", columns_.names(),
         [&](const auto& column) { out.text("[").string(column.first).text(",").number(column.second).text("]"); });
    out.text(",\n\"book\":");
    book(out, run.summary.textbook);
    out.text("}\n");
    out.flush();
    return text;
  }

  std::vector<NameId> stem_numbers() const {
    std::vector<NameId> all(words_.stems().size());
    std::iota(all.begin(), all.end(), NameId{0});
    return all;
  }

  static void book(TextBuffer& out, const std::optional<TextbookComparison>& comparison) {
    if (!comparison) {
      out.text("null");
      return;
    }
    const Textbook& book = comparison->textbook;
    out.text("{\"layers\":").number(book.layers).text(",\"interval\":").number(book.interval);
    out.text(",\"layer\":").number(book.layer.count).text(",\"boundary\":").number(book.boundary.count);
    out.text(",\"formula\":").number(comparison->formula.count).text(",\"reasons\":[");
    bool first = true;
    for (const TextbookReason& reason : comparison->reasons) {
      out.text(first ? "" : ",").text("{\"bytes\":").number(reason.bytes.count);
      out.text(",\"text\":").string(reason.text).text("}");
      first = false;
    }
    out.text("]}");
  }

  const Step& step_;
  const Timeline& timeline_;
  Selection chosen_;
  NumberedWords words_;
  std::vector<std::int64_t> name_words_, layer_words_;  // by name, by layer: word, or -1 before its first use
  Columns columns_;
};

}  // namespace

std::string page_data(const PageRun& run) { return DataWriter(run).write(run); }

}  // namespace tidemark
