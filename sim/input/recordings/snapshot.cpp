// What does a snapshot of torch.cuda.memory say? device_traces: per device the allocs and frees of its ring buffer,
// sizes as requested; segments: what is there at its end, also what is older than the buffer.
#include <map>
#include <string_view>
#include <unordered_set>

#include <fmt/format.h>

#include "format.hpp"
#include "held_events.hpp"
#include "unpacked.hpp"
#include "unpickle.hpp"

namespace tidemark::recordings {
namespace {

using Kind = PickleValue::Kind;

class Snapshot {
 public:
  Snapshot(const std::string& path, const Pickle& pickle) : path_(path), pickle_(pickle) {}

  HeldEvents of(const std::string& wanted) {
    const std::size_t device = chosen(wanted);
    const Pickle::List& entries = pickle_.list(traces()[device]);
    for (const PickleValue& entry : entries) {
      ++row_;
      take(entry);
    }
    const std::vector<HeldBlock> blocks = blocks_at_end(static_cast<std::int64_t>(device));
    add_earlier_blocks(held_, blocks);
    return std::move(held_);
  }

 private:
  const Pickle::List& traces() const {
    const PickleValue traces = pickle_.member(pickle_.root(), "device_traces");
    if (traces.kind != Kind::list) fail("expected a snapshot of torch.cuda.memory: a dict with 'device_traces'");
    return pickle_.list(traces);
  }

  std::size_t chosen(const std::string& wanted) const {
    std::string names;
    std::size_t found = 0, devices = 0;
    for (std::size_t i = 0; i < traces().size(); ++i) {
      if (traces()[i].kind != Kind::list) fail("'device_traces' must hold lists");
      if (pickle_.list(traces()[i]).empty()) continue;
      const std::string name = fmt::format("cuda:{}", i);
      if (name == wanted) return i;
      names += (names.empty() ? "" : ", ") + name;
      found = i;
      ++devices;
    }
    if (devices == 0) fail("no events; call torch.cuda.memory._record_memory_history() before the step");
    if (!wanted.empty()) fail(fmt::format("no events of '{}'; expected one of: {}", wanted, names));
    if (devices > 1) fail(fmt::format("events of several devices ({}); name one by --recorded-device", names));
    return found;
  }

  void take(PickleValue entry) {
    const std::string action = text(entry, "action");
    HeldEvent event;
    event.row = row_;
    if (action == "alloc") {
      event.bytes = whole(entry, "size");
      event.address = static_cast<std::uint64_t>(whole(entry, "addr"));
      event.name = name_of(pickle_.member(entry, "frames"));
      alive_[event.address] = event.bytes;
      requested_.erase(event.address);
    } else if (action == "free_requested" || action == "free_completed") {
      event.address = static_cast<std::uint64_t>(whole(entry, "addr"));
      if (action == "free_completed" && requested_.erase(event.address) > 0) return;
      if (action == "free_requested") requested_.insert(event.address);
      const auto found = alive_.find(event.address);
      event.bytes = -(found == alive_.end() ? whole(entry, "size") : found->second);
      if (found != alive_.end()) alive_.erase(found);
    } else {
      return;  // segments, out of memory, marks
    }
    if (event.bytes == 0) return;  // a tensor without elements
    if (event.bytes == INT64_MIN || (event.bytes < 0) != (action != "alloc"))
      fail(fmt::format("'size' must not be {}", event.bytes));
    const PickleValue time = pickle_.member(entry, "time_us");
    if (time.kind == Kind::integer && time.integer > INT64_MIN / 1000 && time.integer < INT64_MAX / 1000)
      event.time = time.integer * 1000;
    held_.events.push_back(event);
  }

  std::vector<HeldBlock> blocks_at_end(std::int64_t device) const {
    std::vector<HeldBlock> out;
    const PickleValue segments = pickle_.member(pickle_.root(), "segments");
    if (segments.kind != Kind::list) fail("'segments' must be a list");
    for (const PickleValue& segment : pickle_.list(segments)) {
      if (whole(segment, "device") != device) continue;
      std::int64_t address = whole(segment, "address");
      const PickleValue blocks = pickle_.member(segment, "blocks");
      if (blocks.kind != Kind::list) fail("'blocks' of a segment must be a list");
      for (const PickleValue& block : pickle_.list(blocks)) {
        const std::int64_t size = whole(block, "size");
        const PickleValue requested = pickle_.member(block, "requested_size");
        const std::int64_t bytes = requested.kind == Kind::integer && requested.integer > 0 ? requested.integer : size;
        if (text(block, "state") == "active_allocated" && bytes > 0)
          out.push_back({static_cast<std::uint64_t>(address), bytes});
        address = static_cast<std::int64_t>(static_cast<std::uint64_t>(address) + static_cast<std::uint64_t>(size));
      }
    }
    return out;
  }

  /// The first frame of a Python file, as "train.py:42 forward"; -1 without one.
  std::int64_t name_of(PickleValue frames) {
    if (frames.kind != Kind::list) return -1;
    const auto [known, is_new] = names_.try_emplace(frames.index, -1);
    if (!is_new) return known->second;
    for (const PickleValue& frame : pickle_.list(frames)) {
      const PickleValue file = pickle_.member(frame, "filename");
      const PickleValue line = pickle_.member(frame, "line");
      const PickleValue function = pickle_.member(frame, "name");
      if (file.kind != Kind::text || line.kind != Kind::integer || function.kind != Kind::text) continue;
      const std::string& path = pickle_.text(file);
      if (!path.ends_with(".py")) continue;
      held_.names.push_back(
          fmt::format("{}:{} {}", path.substr(path.rfind('/') + 1), line.integer, pickle_.text(function)));
      return known->second = static_cast<std::int64_t>(held_.names.size()) - 1;
    }
    return -1;
  }

  std::int64_t whole(PickleValue dict, const char* key) const {
    const PickleValue value = pickle_.member(dict, key);
    if (value.kind != Kind::integer) fail(fmt::format("'{}' must be a whole number", key));
    return value.integer;
  }
  std::string text(PickleValue dict, const char* key) const {
    const PickleValue value = pickle_.member(dict, key);
    if (value.kind != Kind::text) fail(fmt::format("'{}' must be a string", key));
    return pickle_.text(value);
  }
  [[noreturn]] void fail(const std::string& message) const { recordings::fail(path_, row_, message); }

  const std::string& path_;
  const Pickle& pickle_;
  HeldEvents held_;
  std::map<std::uint64_t, std::int64_t> alive_;  // size by address
  std::unordered_set<std::uint64_t> requested_;  // freed by the host, not yet by the device
  std::map<std::size_t, std::int64_t> names_;    // by list of frames
  std::int64_t row_ = 0;
};

}  // namespace

FormatPtr open_snapshot(const std::string& path, const std::string& device) {
  UnpackedFile file(path);
  const Pickle pickle(file, path);
  return hand_out(Snapshot(path, pickle).of(device));
}

}  // namespace tidemark::recordings
