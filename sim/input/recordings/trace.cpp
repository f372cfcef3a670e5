// What does a torch.profiler Chrome trace say of memory? Its events named "[memory]", with args "Bytes" (negative:
// freed), "Device Type" (0 CPU, 1 GPU), "Device Id", and, from PyTorch 1.11 on, "Addr" and "Total Reserved".
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "format.hpp"
#include "held_events.hpp"
#include "json_elements.hpp"
#include "unpacked.hpp"

namespace tidemark::recordings {
namespace {

using Json = nlohmann::json;

constexpr std::size_t most_events = 32'000'000;
constexpr double latest_us = 9.2e15;  // in ns it still fits

std::string name_of(std::int64_t type, std::int64_t id) {
  return type == 0 ? "cpu" : fmt::format("cuda:{}", std::max<std::int64_t>(id, 0));
}

/// The memory events of each device in the file.
class TraceScan {
 public:
  explicit TraceScan(const std::string& path) : path_(path), file_(path), elements_(file_, path, member(path)) {
    std::string text;
    while (elements_.next(text))
      if (text.find("\"[memory]\"") != std::string::npos) take(text);
  }

  HeldEvents of(const std::string& wanted) {
    if (devices_.empty())
      recordings::fail(path_, 0, "no \"[memory]\" events; record with profile(..., profile_memory=True)");
    const std::string device = chosen(wanted);
    const auto found = devices_.find(device);
    if (found == devices_.end())
      recordings::fail(path_, 0, fmt::format("no memory events of '{}'; expected one of: {}", device, names()));
    HeldEvents held = std::move(found->second);
    std::ranges::stable_sort(held.events, {}, &HeldEvent::time);  // threads stand one behind the other in some
    if (has_addresses_)
      add_earlier_blocks(held, {});
    else
      pair_by_size(held);
    return held;
  }

 private:
  /// "" when the text is the bare array of events.
  static std::string member(const std::string& path) {
    UnpackedFile file(path);
    char first = 0;
    file >> first;
    return first == '[' ? "" : "traceEvents";
  }

  std::string names() const {
    std::vector<std::string> out;
    for (const auto& [name, held] : devices_) out.push_back(name);
    return fmt::format("{}", fmt::join(out, ", "));
  }

  std::string chosen(const std::string& wanted) const {
    if (!wanted.empty()) return wanted;
    const std::size_t gpus = devices_.size() - devices_.count("cpu");
    if (gpus > 1)
      recordings::fail(path_, 0, fmt::format("events of several devices ({}); name one by --recorded-device", names()));
    return devices_.rbegin()->first;  // "cpu" stands before "cuda:N"
  }

  void take(const std::string& text) {
    const Json event = Json::parse(text, nullptr, false);
    if (event.is_discarded()) fail("damaged JSON");
    if (!event.is_object() || event.value("name", Json()) != "[memory]") return;
    const Json args = event.value("args", Json::object());
    if (!args.is_object()) fail("a memory event without args");
    if (++count_ > most_events) fail(fmt::format("more than {} memory events; record fewer steps", most_events));
    HeldEvent out;
    out.row = elements_.row();
    out.time = time_of(event);
    out.bytes = whole(args, "Bytes");
    if (out.bytes == 0 || out.bytes == INT64_MIN) fail(fmt::format("'Bytes' must not be {}", out.bytes));
    if (args.contains("Total Reserved")) out.reserved = whole(args, "Total Reserved");
    const bool has_address = args.contains("Addr");
    if (count_ > 1 && has_address != has_addresses_) fail("some memory events have an 'Addr' and some have none");
    has_addresses_ = has_address;
    if (has_address) out.address = static_cast<std::uint64_t>(whole(args, "Addr"));
    HeldEvents& device = devices_[name_of(whole(args, "Device Type"), whole(args, "Device Id"))];
    if (device.events.empty() && args.contains("Total Allocated"))
      device.level_before = whole(args, "Total Allocated") - out.bytes;
    device.events.push_back(out);
  }

  std::int64_t whole(const Json& args, const char* key) const {
    const auto found = args.find(key);
    if (found == args.end() || !found->is_number_integer())
      fail(fmt::format("'{}' of a memory event must be a whole number", key));
    return found->get<std::int64_t>();
  }

  std::int64_t time_of(const Json& event) const {
    const auto found = event.find("ts");
    if (found == event.end() || !found->is_number() || !(std::abs(found->get<double>()) < latest_us))
      fail("'ts' of a memory event must be a time in microseconds");
    return found->is_number_integer() ? found->get<std::int64_t>() * 1000 : std::llround(found->get<double>() * 1000);
  }
  [[noreturn]] void fail(const std::string& message) const { recordings::fail(path_, elements_.row(), message); }

  std::string path_;
  UnpackedFile file_;
  JsonElements elements_;
  std::map<std::string, HeldEvents> devices_;
  std::size_t count_ = 0;
  bool has_addresses_ = false;
};

}  // namespace

FormatPtr open_trace(const std::string& path, const std::string& device) {
  return hand_out(TraceScan(path).of(device));
}

}  // namespace tidemark::recordings
