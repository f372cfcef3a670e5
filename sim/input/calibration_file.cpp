#include "tidemark/input/calibration_file.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "tidemark/input/quantities.hpp"

namespace tidemark {
namespace {

std::string cost_name(const std::string& kind, bool is_backward) { return kind + (is_backward ? ".backward" : ""); }

template <class At, class Rate>
std::vector<RatePoint> read_points(const Field& field, const Block& known, At at, Rate rate) {
  std::vector<RatePoint> points;
  for (const Field& item : items(field)) {
    const YamlMap map(item.value, known);
    const Field place = map.require("at");
    points.push_back({at(place), rate(map.require("rate"))});
    if (points.back().at <= (points.size() > 1 ? points[points.size() - 2].at : 0))
      place.fail("'at' must be above 0 and above the point before it");
  }
  if (points.empty()) field.fail(fmt::format("'{}' must have a point", field.key->name));
  return points;
}

KindCost read_cost(const YamlMap& map) {
  KindCost cost;
  cost.launch = map.get("launch", time, Nanos{});
  const auto flops_a_byte = [](const Field& at) { return static_cast<double>(positive_integer(at)); };
  const auto bytes = [](const Field& at) { return static_cast<double>(size(at).count); };
  if (const auto field = map.optional("flops"))
    cost.flops = read_points(*field, block("flop_point"), flops_a_byte, flop_rate);
  if (const auto field = map.optional("bytes")) cost.bytes = read_points(*field, block("byte_point"), bytes, byte_rate);
  return cost;
}

/// A text in double quotes, on one line.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

/// Six significant digits below a prefix.
std::string rate_text(double rate, const char* unit) {
  constexpr std::array<std::pair<double, const char*>, 5> prefixes = {
      {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {0, ""}}};
  const auto& [scale, prefix] = *std::ranges::find_if(prefixes, [&](const auto& p) { return rate >= p.first; });
  return fmt::format("{:.6g} {}{}", rate / std::max(scale, 1.0), prefix, unit);
}

const char* direction(bool is_backward) { return is_backward ? "backward" : "forward"; }

std::string cost_text(const FittedCost& fitted) {
  std::string out = fmt::format("    - kind: {}\n      direction: {}\n      launch: {} ns\n", quoted(fitted.kind),
                                direction(fitted.is_backward), fitted.cost.launch.count);
  const auto list = [&](const char* key, const std::vector<RatePoint>& points, const char* at, const char* rate) {
    if (points.empty()) return;
    out += fmt::format("      {}:\n", key);
    for (const RatePoint& point : points)
      out += fmt::format("        - {{at: {:.0f}{}, rate: {}}}\n", point.at, at, rate_text(point.rate, rate));
  };
  list("flops", fitted.cost.flops, "", "FLOP/s");
  list("bytes", fitted.cost.bytes, " B", "B/s");
  out += fmt::format("      training_error: {}\n", percent(fitted.training_error));
  if (fitted.held_out_error) out += fmt::format("      held_out_error: {}\n", percent(*fitted.held_out_error));
  return out;
}

std::string point_text(const PredictedOp& point) {
  const MeasuredOp& op = point.op;
  const double measured = static_cast<double>(op.time.count);
  std::string out = fmt::format(
      "    - {{kind: {}, direction: {}, shape: {}, flops: {} FLOP, bytes: {} B, measured: {} ns", quoted(op.kind),
      direction(op.is_backward), quoted(op.shape), to_string(op.flops), op.moved.count, op.time.count);
  if (op.median) out += fmt::format(", spread: {}", percent(static_cast<double>(op.median->count) / measured - 1));
  out += fmt::format(", predicted: {} ns, residual: {}", point.predicted.count,
                     percent(static_cast<double>(point.predicted.count) / measured - 1));
  return out + (op.held_out.value_or(false) ? ", held_out: true}\n" : "}\n");
}

}  // namespace

double written_rate(double rate) {
  constexpr double least = 1, most = 1e17;
  return *parse_rate(rate_text(std::clamp(rate, least, most), "B/s"), "B/s");
}

std::string percent(double part) { return fmt::format("{:.1f} %", part * 100); }

Calibration read_calibration(const Field& field) {
  const YamlMap map(field.value, block("calibration"));
  const Field layout = map.require("layout");
  if (const std::int64_t given = positive_integer(layout); given != calibration_layout)
    layout.fail(fmt::format("a calibration of layout {}; this version reads layout {}: run 'tidemark calibrate' again",
                            given, calibration_layout));
  Calibration out;
  out.dtype = map.get("dtype", dtype, DType::float32);
  for (const Field& item : items(map.require("costs"))) {
    const YamlMap cost(item.value, block("calibration_cost"));
    const Field kind = cost.require("kind");
    const bool backward = cost.get("direction", choice, std::string("forward")) == "backward";
    if (!out.costs.emplace(cost_name(text(kind), backward), read_cost(cost)).second)
      kind.fail(fmt::format("'{}' {} stands twice", text(kind), direction(backward)));
  }
  if (const auto points = map.optional("points"))
    for (const Field& item : items(*points)) {
      const YamlMap point(item.value, block("calibration_point"));
      time(point.require("measured"));
    }
  return out;
}

Calibration calibration_of(const DeviceProfile& profile) {
  Calibration out{profile.dtype, {}};
  for (const FittedCost& fitted : profile.costs)
    out.costs.emplace(cost_name(fitted.kind, fitted.is_backward), fitted.cost);
  return out;
}

std::string write_profile(const DeviceProfile& profile) {
  std::string out = "# Written by tidemark calibrate; any scenario's 'device:' takes this file.\n";
  out += "name: " + quoted(profile.name) + "\n";
  const std::string type(to_string(profile.dtype));
  if (profile.flop_rate > 0) out += "flops: {" + type + ": " + rate_text(profile.flop_rate, "FLOP/s") + "}\n";
  if (profile.byte_rate > 0) out += "memory_bandwidth: " + rate_text(profile.byte_rate, "B/s") + "\n";
  out += fmt::format("calibration:\n  layout: {}\n  dtype: {}\n  source: {}\n  costs:\n", calibration_layout, type,
                     quoted(profile.source));
  for (const FittedCost& cost : profile.costs) out += cost_text(cost);
  out += "  points:\n";
  for (const PredictedOp& point : profile.points) out += point_text(point);
  return out;
}

}  // namespace tidemark
