#include "tidemark/input/caching_settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <functional>
#include <optional>

#include "tidemark/base/errors.hpp"
#include "tidemark/input/quantities.hpp"

namespace tidemark {
namespace {

/// Says what is wrong with the value of a key, and does not come back.
using Fail = std::function<void(const std::string&)>;

constexpr std::int64_t most_mb = std::int64_t{1} << 40;

std::optional<std::int64_t> whole(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

bool is_power_of_2(std::int64_t value) { return value > 0 && std::has_single_bit(static_cast<std::uint64_t>(value)); }

Bytes megabytes(const std::string& text, const std::string& name, const Fail& fail) {
  const auto value = whole(text);
  if (!value || *value <= 20 || *value > most_mb)
    fail(fmt::format("'{}' must be a whole number above 20, not '{}'", name, text));
  return Bytes{*value << 20};
}

double share(const std::string& text, const std::string& name, bool may_be_one, const Fail& fail) {
  double value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (!is_number || !(value > 0) || value > 1 || (value == 1 && !may_be_one))
    fail(fmt::format("'{}' must be a number between 0 and 1, not '{}'", name, text));
  return value;
}

/// parseRoundUpPower2Divisions: one number, or [MB:divisions,...,>:divisions]. The first interval's divisions hold
/// below it too; '>' holds from the last named interval on, that one included.
CachingSettings::Divisions divisions(std::string text, const Fail& fail) {
  CachingSettings::Divisions out{};
  std::erase(text, ' ');
  const auto refuse = [&] {
    fail(
        fmt::format("'roundup_power2_divisions' must be a power of 2, or a list such as [256:1,512:2,>:4] of powers of "
                    "2, not '{}'",
                    text));
  };
  if (!text.starts_with('[')) {
    const auto value = whole(text);
    if (!value || !is_power_of_2(*value)) refuse();
    out.fill(*value);
    return out;
  }
  if (!text.ends_with(']') || text.size() < 3) refuse();
  std::string_view rest = std::string_view(text).substr(1, text.size() - 2);
  std::size_t last = 0;
  for (bool first = true; !rest.empty(); first = false) {
    const std::string_view entry = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
    const std::size_t colon = entry.find(':');
    if (colon == std::string_view::npos) refuse();
    const auto value = whole(entry.substr(colon + 1));
    if (!value || (*value != 0 && !is_power_of_2(*value))) refuse();
    if (entry.substr(0, colon) == ">") {
      std::fill(out.begin() + static_cast<std::ptrdiff_t>(last), out.end(), *value);
      continue;
    }
    const auto from = whole(entry.substr(0, colon));
    if (!from || !is_power_of_2(*from)) refuse();
    last = std::min(out.size() - 1, static_cast<std::size_t>(std::countr_zero(static_cast<std::uint64_t>(*from))));
    if (first) std::fill(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(last), *value);
    out[last] = *value;
  }
  return out;
}

bool truth(const std::string& text, const std::string& name, const Fail& fail) {
  if (text != "True" && text != "False") fail(fmt::format("'{}' must be True or False, not '{}'", name, text));
  return text == "True";
}

/// One key of PyTorch's; false when it has no such key.
bool set(CachingSettings& settings, const std::string& name, const std::string& value, const Fail& fail) {
  if (name == "max_split_size_mb") {
    settings.max_split_size = megabytes(value, name, fail);
  } else if (name == "roundup_power2_divisions") {
    settings.roundup_power2_divisions = divisions(value, fail);
  } else if (name == "garbage_collection_threshold") {
    settings.garbage_collection_threshold = share(value, name, false, fail);
  } else if (name == "expandable_segments") {
    settings.expandable_segments = truth(value, name, fail);
  } else if (name == "max_non_split_rounding_mb") {
    settings.max_non_split_rounding = megabytes(value, name, fail);
  } else if (name == "memory_fraction") {
    settings.memory_fraction = share(value, name, true, fail);
  } else {
    return false;
  }
  return true;
}

}  // namespace

CachingSettings read_caching(const YamlMap& map, const Device& device) {
  CachingSettings settings;
  settings.capacity = device.capacity ? device.capacity : device.usable;
  const std::optional<Bytes> usable = device.usable ? device.usable : device.capacity;
  if (usable) settings.available = *usable - device.non_torch;
  for (const Field& field : map.fields()) {
    const std::string name(field.key->name);
    if (name == "kind") continue;
    if (name == "capacity") {
      settings.capacity = size(field);
      settings.available = *settings.capacity - device.non_torch;
    } else if (name == "expandable_segments") {
      settings.expandable_segments = boolean(field);
    } else {
      set(settings, name, field.value->text, [&](const std::string& message) { field.fail(message); });
    }
  }
  return settings;
}

CachingSettings parse_alloc_conf(const std::string& conf) {
  CachingSettings settings;
  const auto fail = [&](const std::string& message) { throw InputError(fmt::format("{}, in '{}'", message, conf)); };
  for (std::size_t at = 0; at < conf.size();) {
    std::size_t end = at;
    for (bool in_list = false; end < conf.size() && (in_list || conf[end] != ','); ++end)
      in_list = conf[end] == '[' || (in_list && conf[end] != ']');
    const std::string entry = conf.substr(at, end - at);
    at = end + 1;
    const std::size_t colon = entry.find(':');
    if (colon == std::string::npos) fail(fmt::format("'{}' must be key:value", entry));
    const std::string name = entry.substr(0, colon);
    if (!set(settings, name, entry.substr(colon + 1), fail))
      fail(
          fmt::format("unknown key '{}'; expected one of: max_split_size_mb, roundup_power2_divisions, "
                      "garbage_collection_threshold, expandable_segments, max_non_split_rounding_mb",
                      name));
  }
  return settings;
}

std::vector<std::string> contradictions(const CachingSettings& settings) {
  std::vector<std::string> out;
  if (settings.max_split_size && settings.expandable_segments)
    out.emplace_back(
        "max_split_size_mb with expandable_segments: oversize free blocks are refused to smaller requests, and cannot "
        "be given back one by one (PyTorch before 2.9 stops with an internal error where it tries)");
  if (settings.garbage_collection_threshold > 0 && !settings.memory_fraction)
    out.emplace_back("garbage_collection_threshold without memory_fraction: PyTorch collects nothing");
  return out;
}

}  // namespace tidemark
