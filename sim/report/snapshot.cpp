#include "tidemark/report/snapshot.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pickle.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/report/moment.hpp"

namespace tidemark {
namespace {

constexpr std::int64_t first_address = 0x7f0000000000;  // where CUDA's allocations begin on Linux
constexpr std::int64_t alignment = 512;                 // of CUDA's caching allocator

std::int64_t rounded(Bytes bytes) { return (bytes.count + alignment - 1) / alignment * alignment; }

/// Gives addresses: the smallest free place that fits, else new space on top.
class Arena {
 public:
  std::int64_t take(std::int64_t size) {
    const auto fit = by_size_.lower_bound({size, 0});
    if (fit == by_size_.end()) {
      top_ += size;
      check(top_ > 0, "the snapshot's address space is full");
      return first_address + top_ - size;
    }
    const auto [found, address] = *fit;
    remove(address, found);
    if (found > size) add(address + size, found - size);
    return address;
  }
  void give_back(std::int64_t address, std::int64_t size) {
    auto after = by_address_.lower_bound(address);
    if (after != by_address_.end() && address + size == after->first) {
      size += after->second;
      remove(after->first, after->second);
    }
    after = by_address_.lower_bound(address);
    if (after != by_address_.begin()) {
      const auto [before, length] = *std::prev(after);
      if (before + length == address) {
        remove(before, length);
        address = before;
        size += length;
      }
    }
    add(address, size);
  }
  std::int64_t size() const { return top_; }

 private:
  void add(std::int64_t address, std::int64_t size) {
    by_address_[address] = size;
    by_size_.insert({size, address});
  }
  void remove(std::int64_t address, std::int64_t size) {
    by_address_.erase(address);
    by_size_.erase({size, address});
  }
  std::map<std::int64_t, std::int64_t> by_address_;
  std::set<std::pair<std::int64_t, std::int64_t>> by_size_;
  std::int64_t top_ = 0;
};

/// "layers.3.mlp" as "layers", "layers.3", "layers.3.mlp", the innermost first.
std::vector<std::string> modules_of(const std::string& layer) {
  std::vector<std::string> out;
  for (std::size_t end = layer.size(); end != std::string::npos && end > 0; end = layer.rfind('.', end - 1))
    out.push_back(layer.substr(0, end));
  return out;
}

class SnapshotWriter {
 public:
  SnapshotWriter(const Step& step, const Timeline& timeline, const TextSink& sink)
      : step_(step), timeline_(timeline), out_(sink), ranks_(std::max(step.ranks, 1)) {
    arenas_.resize(static_cast<std::size_t>(ranks_));
    address_.assign(step.storages.size(), 0);
    maker_.assign(step.storages.size(), no_id);
  }

  void write() {
    out_.begin_dict();
    out_.key("device_traces");
    out_.begin_list();
    for (int rank = 0; rank < ranks_; ++rank) trace(rank);
    out_.end_list();
    out_.key("segments");
    out_.begin_list();
    for (int rank = 0; rank < ranks_; ++rank) segment(rank);
    out_.end_list();
    out_.key("allocator_settings");
    out_.begin_dict();
    out_.end_dict();
    out_.end_dict();
    out_.stop();
  }

 private:
  void trace(int rank) {
    Arena& arena = arenas_[static_cast<std::size_t>(rank)];
    out_.begin_list();
    for (const MemoryEvent& event : timeline_.events) {
      const StepStorage& storage = step_.storages[event.storage];
      if (storage.rank != rank) continue;
      std::int64_t& address = address_[event.storage];
      if (event.is_alloc()) {
        address = arena.take(rounded(storage.bytes));
        maker_[event.storage] = event.op();
        live_[{rank, address}] = event.storage;
        if (event.op() != no_id) entry("alloc", event);
      } else {
        entry("free_requested", event);
        entry("free_completed", event);
        arena.give_back(address, rounded(storage.bytes));
        live_.erase({rank, address});
      }
    }
    out_.end_list();
  }

  void entry(std::string_view action, const MemoryEvent& event) {
    out_.begin_dict();
    out_.member("action", action);
    out_.member("addr", address_[event.storage]);
    out_.member("size", step_.storages[event.storage].bytes.count);
    out_.member("stream", std::int64_t{0});
    out_.member("time_us", event.time.count / 1000);
    out_.key("frames");
    frames(event.storage, event.op());
    out_.end_dict();
    out_.end_item();
  }

  /// One list for each storage and op that touches it; the pickle refers back to frames it has seen.
  void frames(StorageId id, OpId op_id) {
    const StepStorage& storage = step_.storages[id];
    out_.begin_list();
    const std::string layer(layer_name(step_, storage.layer));
    frame(layer, step_.names[storage.name] + " (" + std::string(to_string(storage.category)) + ")");
    if (op_id == no_id) {
      frame("", "initial");
    } else {
      const StepOp& op = step_.ops[op_id];
      const std::string op_layer(layer_name(step_, op.layer));
      frame(op_layer, step_.names[op.name]);
      for (const std::string& module : modules_of(op_layer)) frame(op_layer, module);
      frame("", std::string(to_string(op.phase)));
      frame("", "step " + std::to_string(op.step));
    }
    out_.end_list();
  }

  void frame(const std::string& file, const std::string& name) {
    const auto [found, is_new] = frames_.try_emplace(file + "\n" + name, 0U);
    if (is_new) {
      out_.begin_dict();
      out_.member("filename", file.empty() ? "tidemark" : file);
      out_.member("line", std::int64_t{0});
      out_.member("name", name);
      out_.end_dict();
      found->second = out_.remember();
    } else {
      out_.recall(found->second);
    }
    out_.end_item();
  }

  void segment(int rank) {
    const std::int64_t size = arenas_[static_cast<std::size_t>(rank)].size();
    if (size == 0) return;
    std::int64_t allocated = 0;
    std::int64_t requested = 0;
    for (const auto& [place, id] : live_) {
      if (place.first != rank) continue;
      allocated += rounded(step_.storages[id].bytes);
      requested += step_.storages[id].bytes.count;
    }
    out_.begin_dict();
    out_.member("device", std::int64_t{rank});
    out_.member("address", first_address);
    out_.member("total_size", size);
    out_.member("allocated_size", allocated);
    out_.member("active_size", allocated);
    out_.member("requested_size", requested);
    out_.member("stream", std::int64_t{0});
    out_.member("segment_type", "large");
    out_.key("segment_pool_id");
    out_.pair(0, 0);
    out_.key("is_expandable");
    out_.boolean(false);
    out_.key("frames");
    out_.begin_list();
    out_.end_list();
    out_.key("blocks");
    blocks(rank, size);
    out_.end_dict();
    out_.end_item();
  }

  /// Used and free blocks, edge to edge.
  void blocks(int rank, std::int64_t size) {
    out_.begin_list();
    std::int64_t at = first_address;
    for (auto place = live_.lower_bound({rank, 0}); place != live_.end() && place->first.first == rank; ++place) {
      const std::int64_t address = place->first.second;
      const Bytes bytes = step_.storages[place->second].bytes;
      if (address > at) block(at, address - at, 0, no_id);
      block(address, rounded(bytes), bytes.count, place->second);
      at = address + rounded(bytes);
    }
    if (const std::int64_t end = first_address + size; end > at) block(at, end - at, 0, no_id);
    out_.end_list();
  }

  void block(std::int64_t address, std::int64_t size, std::int64_t requested, StorageId id) {
    out_.begin_dict();
    out_.member("address", address);
    out_.member("size", size);
    out_.member("requested_size", requested);
    out_.member("state", id == no_id ? "inactive" : "active_allocated");
    out_.key("frames");
    if (id == no_id) {
      out_.begin_list();
      out_.end_list();
    } else {
      frames(id, maker_[id]);
    }
    out_.end_dict();
    out_.end_item();
  }

  const Step& step_;
  const Timeline& timeline_;
  PickleWriter out_;
  int ranks_;
  std::vector<Arena> arenas_;                               // by rank
  std::vector<std::int64_t> address_;                       // by storage
  std::vector<OpId> maker_;                                 // by storage
  std::map<std::pair<int, std::int64_t>, StorageId> live_;  // by rank and address
  std::unordered_map<std::string, std::uint32_t> frames_;   // where the pickle keeps them
};

}  // namespace

void write_snapshot(const Step& step, const Timeline& timeline, const TextSink& sink) {
  SnapshotWriter(step, timeline, sink).write();
}

}  // namespace tidemark
