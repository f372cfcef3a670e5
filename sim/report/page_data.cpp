#include "page_data.hpp"

#include <map>
#include <numeric>
#include <tuple>
#include <vector>

#include "text_buffer.hpp"
#include "tidemark/report/holders.hpp"
#include "tidemark/report/json.hpp"
#include "tidemark/report/peak.hpp"

namespace tidemark {
namespace {

/// Of the rank that reaches the peak: its ops, storages and events, numbered anew from 0.
struct Selection {
  std::vector<OpId> ops;
  std::vector<StorageId> storages;
  std::vector<std::size_t> events;
  std::vector<std::int64_t> op_number, storage_number;
  std::vector<std::uint32_t> events_before;  // how many of its events come before this one

  Selection(const Step& step, const Timeline& timeline) {
    const std::vector<MemoryEvent>& all = timeline.events;
    const std::int16_t rank = all.empty() ? std::int16_t{0} : step.storages[all[timeline.peak_event].storage].rank;
    for (OpId id = 0; id < step.ops.size(); ++id) {
      op_number.push_back(static_cast<std::int64_t>(ops.size()));
      if (step.ops[id].rank == rank) ops.push_back(id);
    }
    for (StorageId id = 0; id < step.storages.size(); ++id) {
      storage_number.push_back(static_cast<std::int64_t>(storages.size()));
      if (step.storages[id].rank == rank) storages.push_back(id);
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      events_before.push_back(static_cast<std::uint32_t>(events.size()));
      if (step.storages[all[i].storage].rank == rank) events.push_back(i);
    }
    events_before.push_back(static_cast<std::uint32_t>(events.size()));
  }
};

class DataWriter {
 public:
  DataWriter(const Step& step, const Timeline& timeline, const Summary& summary)
      : step_(step),
        timeline_(timeline),
        summary_(summary),
        chosen_(step, timeline),
        sink_([this](std::string_view text) { text_ += text; }),
        out_(sink_) {}

  std::string write() {
    holders_ = holders(step_, timeline_);
    name_work();
    out_.text("{\"summary\":").text(summary_json(summary_));
    fixed_words();
    out_.text(",\n\"end\":").number(timeline_.end.count);
    out_.text(",\n\"peak_event\":");
    out_.number(timeline_.events.empty() ? 0U : chosen_.events_before[timeline_.peak_event]);
    ops();
    storages();
    holder_columns();
    events();
    strings();
    key("limit_name");
    out_.string(summary_.limit_name);
    book();
    out_.text("}\n");
    out_.flush();
    return std::move(text_);
  }

 private:
  /// What each op does, in words, beside the holders' texts.
  void name_work() {
    std::map<std::tuple<Phase, NameId, std::int32_t>, std::size_t> known;
    for (const OpId id : chosen_.ops) {
      const StepOp& op = step_.ops[id];
      const auto [found, is_new] = known.try_emplace({op.phase, op.name, op.layer}, holders_.texts.size());
      if (is_new)
        holders_.texts.push_back(phase_of_work(op.phase, step_.names[op.name],
                                               op.layer < 0 ? "" : step_.layers[static_cast<std::size_t>(op.layer)]));
      work_.push_back(found->second);
    }
  }

  void key(std::string_view name) {
    out_.text(first_ ? "\"" : ",\n\"").text(name).text("\":");
    first_ = false;
  }
  template <class Range, class Write>
  void list(std::string_view name, const Range& range, Write write) {
    key(name);
    out_.text("[");
    bool first = true;
    for (const auto& item : range) {
      if (!first) out_.text(",");
      first = false;
      write(item);
    }
    out_.text("]");
  }
  template <class Range, class Get>
  void numbers(std::string_view name, const Range& range, Get get) {
    list(name, range, [&](const auto& item) { out_.number(get(item)); });
  }
  /// Differences to the one before: short where values ascend.
  template <class Range, class Get>
  void differences(std::string_view name, const Range& range, Get get) {
    std::int64_t before = 0;
    numbers(name, range, [&](const auto& item) {
      const std::int64_t value = get(item);
      const std::int64_t difference = value - before;
      before = value;
      return difference;
    });
  }
  void open(std::string_view name) {
    key(name);
    out_.text("{");
    first_ = true;
  }
  void close() {
    out_.text("}");
    first_ = false;
  }

  void fixed_words() {
    first_ = false;
    const auto string = [&](std::string_view text) { out_.string(text); };
    list("categories", category_names, string);
    list("phases", phase_names, string);
  }

  /// Each distinct string once. Names and layers come first; a sentence is cut behind its last " of ", since what
  /// follows is most often one of them.
  void strings() {
    for (const std::string& text : holders_.texts) {
      const std::size_t at = text.rfind(" of ");
      const std::size_t cut = at == std::string::npos ? 0 : at + 4;
      heads_.push_back(word(std::string_view(text).substr(0, cut)));
      tails_.push_back(word(std::string_view(text).substr(cut)));
    }
    open("texts");
    differences("head", heads_, [](std::int64_t id) { return id; });
    differences("tail", tails_, [](std::int64_t id) { return id; });
    close();
    std::vector<NameId> all(words_.size());
    std::iota(all.begin(), all.end(), NameId{0});
    list("words", all, [&](NameId id) { out_.string(words_[id]); });
  }
  std::int64_t word(std::string_view text) { return words_.id(text); }
  std::int64_t layer_word(std::int32_t layer) {
    return layer < 0 ? -1 : word(step_.layers[static_cast<std::size_t>(layer)]);
  }
  std::int64_t name_word(NameId name) { return word(step_.names[name]); }

  void ops() {
    const auto op = [&](OpId id) -> const StepOp& { return step_.ops[id]; };
    open("ops");
    differences("name", chosen_.ops, [&](OpId id) { return name_word(op(id).name); });
    differences("layer", chosen_.ops, [&](OpId id) { return layer_word(op(id).layer); });
    numbers("phase", chosen_.ops, [&](OpId id) { return static_cast<int>(op(id).phase); });
    numbers("stream", chosen_.ops, [&](OpId id) { return static_cast<int>(op(id).stream); });
    differences("work", work_, [](std::size_t text) { return static_cast<std::int64_t>(text); });
    numbers("step", chosen_.ops, [&](OpId id) { return op(id).step; });
    differences("start", chosen_.ops, [&](OpId id) { return timeline_.ops[id].start.count; });
    differences("end", chosen_.ops, [&](OpId id) { return timeline_.ops[id].end.count; });
    close();
  }

  void storages() {
    const auto storage = [&](StorageId id) -> const StepStorage& { return step_.storages[id]; };
    open("storages");
    differences("name", chosen_.storages, [&](StorageId id) { return name_word(storage(id).name); });
    differences("layer", chosen_.storages, [&](StorageId id) { return layer_word(storage(id).layer); });
    numbers("category", chosen_.storages, [&](StorageId id) { return static_cast<int>(storage(id).category); });
    numbers("bytes", chosen_.storages, [&](StorageId id) { return storage(id).bytes.count; });
    close();
  }

  void holder_columns() {
    std::vector<Holder> list;
    std::vector<std::uint32_t> counts;
    for (const StorageId id : chosen_.storages) {
      counts.push_back(holders_.first[id + 1] - holders_.first[id]);
      for (std::uint32_t i = holders_.first[id]; i < holders_.first[id + 1]; ++i) list.push_back(holders_.list[i]);
    }
    open("holders");
    numbers("count", counts, [](std::uint32_t count) { return count; });
    differences("from", list,
                [&](const Holder& holder) { return std::int64_t{chosen_.events_before[holder.from_event]}; });
    differences("text", list, [](const Holder& holder) { return std::int64_t{holder.text}; });
    close();
  }

  void events() {
    const auto event = [&](std::size_t i) -> const MemoryEvent& { return timeline_.events[i]; };
    open("events");
    differences("time", chosen_.events, [&](std::size_t i) { return event(i).time.count; });
    // Storages count from 1; a free is negative.
    numbers("what", chosen_.events, [&](std::size_t i) {
      const std::int64_t number = chosen_.storage_number[event(i).storage] + 1;
      return event(i).is_alloc() ? number : -number;
    });
    differences("op", chosen_.events, [&](std::size_t i) {
      return event(i).op() == no_id ? std::int64_t{-1} : chosen_.op_number[event(i).op()];
    });
    close();
  }

  void book() {
    key("book");
    if (!summary_.textbook) {
      out_.text("null");
      return;
    }
    const TextbookComparison& book = *summary_.textbook;
    out_.text("{");
    first_ = true;
    const auto member = [&](std::string_view name, std::int64_t value) {
      key(name);
      out_.number(value);
    };
    member("layers", book.textbook.layers);
    member("interval", book.textbook.interval);
    member("layer", book.textbook.layer.count);
    member("boundary", book.textbook.boundary.count);
    member("formula", book.formula.count);
    list("reasons", book.reasons, [&](const TextbookReason& reason) {
      out_.text("{\"bytes\":").number(reason.bytes.count).text(",\"text\":").string(reason.text).text("}");
    });
    close();
  }

  const Step& step_;
  const Timeline& timeline_;
  const Summary& summary_;
  Selection chosen_;
  Holders holders_;
  NameTable words_;
  std::vector<std::int64_t> heads_, tails_;  // of the texts: words
  std::vector<std::size_t> work_;            // by op: index into the texts
  std::string text_;
  TextSink sink_;
  TextBuffer out_;
  bool first_ = true;
};

}  // namespace

std::string page_data(const Step& step, const Timeline& timeline, const Summary& summary) {
  return DataWriter(step, timeline, summary).write();
}

}  // namespace tidemark
