#include "tidemark/study/calibrate.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

using Column = std::vector<double>;

double dot(const Column& a, const Column& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double seconds(const MeasuredOp& op) { return static_cast<double>(op.time.count) * 1e-9; }
double flops(const MeasuredOp& op) { return static_cast<double>(op.flops.count); }
double moved(const MeasuredOp& op) { return static_cast<double>(op.moved.count); }

// ---- least squares without negative parts (Lawson and Hanson 1974, chapter 23)

/// The least-squares solution in the chosen columns, by elimination of the normal equations; 0 elsewhere.
Column solve(const std::vector<Column>& columns, const Column& target, const std::vector<bool>& chosen) {
  std::vector<std::size_t> at;
  for (std::size_t j = 0; j < columns.size(); ++j)
    if (chosen[j]) at.push_back(j);
  const std::size_t n = at.size();
  std::vector<Column> rows(n, Column(n + 1));
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) rows[i][j] = dot(columns[at[i]], columns[at[j]]);
    rows[i][n] = dot(columns[at[i]], target);
  }
  for (std::size_t i = 0; i < n; ++i) {
    const auto pivot =
        std::max_element(rows.begin() + static_cast<std::ptrdiff_t>(i), rows.end(),
                         [&](const Column& a, const Column& b) { return std::abs(a[i]) < std::abs(b[i]); });
    std::swap(rows[i], *pivot);
    if (std::abs(rows[i][i]) < 1e-13) rows[i][i] = std::numeric_limits<double>::infinity();  // tells nothing new: 0
    for (std::size_t k = 0; k < n; ++k) {
      if (k == i) continue;
      const double factor = rows[k][i] / rows[i][i];
      for (std::size_t j = i; j <= n; ++j)
        if (std::isfinite(rows[i][j])) rows[k][j] -= factor * rows[i][j];
    }
  }
  Column out(columns.size(), 0.0);
  for (std::size_t i = 0; i < n; ++i) out[at[i]] = rows[i][n] / rows[i][i];
  return out;
}

Column residual(const std::vector<Column>& columns, const Column& target, const Column& x) {
  Column out = target;
  for (std::size_t j = 0; j < columns.size(); ++j)
    for (std::size_t i = 0; i < out.size(); ++i) out[i] -= columns[j][i] * x[j];
  return out;
}

Column nonnegative_least_squares(const std::vector<Column>& columns, const Column& target) {
  constexpr double enough = 1e-12;
  std::vector<bool> chosen(columns.size(), false);
  Column x(columns.size(), 0.0);
  for (std::size_t round = 0; round < 3 * columns.size() + 3; ++round) {
    const Column left = residual(columns, target, x);
    std::size_t best = columns.size();
    double steepest = enough;
    for (std::size_t j = 0; j < columns.size(); ++j)
      if (const double gain = dot(columns[j], left); !chosen[j] && gain > steepest)
        std::tie(best, steepest) = std::pair(j, gain);
    if (best == columns.size()) break;
    chosen[best] = true;
    for (;;) {
      const Column next = solve(columns, target, chosen);
      double step = 1;
      for (std::size_t j = 0; j < columns.size(); ++j)
        if (chosen[j] && next[j] <= 0 && x[j] > next[j]) step = std::min(step, x[j] / (x[j] - next[j]));
      for (std::size_t j = 0; j < columns.size(); ++j) x[j] += step * (next[j] - x[j]);
      if (step == 1) break;
      for (std::size_t j = 0; j < columns.size(); ++j)
        if (chosen[j] && x[j] <= enough) {
          chosen[j] = false;
          x[j] = 0;
        }
    }
  }
  for (double& value : x) value = std::max(value, 0.0);
  return x;
}

// ---- one kind and direction

struct Point {
  double at, work, time;
};

/// Powers of two near which some point lies, each at least `ratio` times the one before.
std::vector<RatePoint> classes(const std::vector<Point>& points, double ratio) {
  std::vector<double> at;
  for (const Point& point : points) at.push_back(std::max(1.0, std::exp2(std::round(std::log2(point.at)))));
  std::ranges::sort(at);
  std::vector<RatePoint> out;
  for (const double one : at)
    if (out.empty() || one >= ratio * out.back().at) out.push_back({one, 0});
  return out;
}

/// Columns of the linear model: seconds a unit at each point, and the launch last; rows scaled by the time, so that the
/// target is 1 everywhere, and columns to length 1.
class Model {
 public:
  Model(const std::vector<Point>& points, const std::vector<RatePoint>& at, bool with_launch)
      : columns_(at.size() + (with_launch ? 1 : 0), Column(points.size(), 0.0)), weights_(points.size(), 1.0) {
    for (std::size_t i = 0; i < points.size(); ++i) {
      const PointPlace found = place(at, points[i].at);
      columns_[found.below][i] += (1 - found.part) * points[i].work / points[i].time;
      columns_[found.above][i] += found.part * points[i].work / points[i].time;
      if (with_launch) columns_.back()[i] = 1 / points[i].time;
    }
  }

  /// Least squares for near points; for far ones the least ratio, up or down: the sum of its logarithms.
  Column fit() {
    constexpr double near = 0.02;
    constexpr int rounds = 12;
    const Column target(weights_.size(), 1.0);
    Column x = weighted();
    for (int round = 1; round < rounds; ++round) {
      reweigh(residual(columns_, target, x), near);
      x = weighted();
    }
    return x;
  }

 private:
  void reweigh(const Column& left, double near) {
    constexpr double least_ratio = 1e-6;
    for (std::size_t i = 0; i < left.size(); ++i) {
      const double distance = std::abs(std::log(std::max(1 - left[i], least_ratio)));
      weights_[i] = std::sqrt(std::max(distance, near)) / std::max(std::abs(left[i]), near);
    }
  }

  Column weighted() const {
    std::vector<Column> columns = columns_;
    Column lengths;
    for (Column& column : columns) {
      for (std::size_t i = 0; i < column.size(); ++i) column[i] *= weights_[i];
      lengths.push_back(std::max(std::sqrt(dot(column, column)), 1e-300));
      for (double& value : column) value /= lengths.back();
    }
    Column x = nonnegative_least_squares(columns, weights_);
    for (std::size_t j = 0; j < x.size(); ++j) x[j] /= lengths[j];
    return x;
  }

  std::vector<Column> columns_;
  Column weights_;
};

KindCost fit_cost(const std::vector<MeasuredOp>& ops) {
  const auto with_flops = [](const MeasuredOp& op) { return op.flops.count > 0; };
  const bool products = std::ranges::any_of(ops, with_flops);
  std::vector<Point> points;
  for (const MeasuredOp& op : ops) {
    if (with_flops(op) != products) continue;
    const double bytes = std::max(moved(op), 1.0);
    points.push_back(products ? Point{flops(op) / bytes, flops(op), seconds(op)} : Point{bytes, bytes, seconds(op)});
  }
  constexpr double products_ratio = 2, bytes_ratio = 8;
  std::vector<RatePoint> at = classes(points, products ? products_ratio : bytes_ratio);
  const bool with_launch = points.size() > 2;
  // No more unknowns than distinct shapes.
  std::ranges::sort(points, {}, [](const Point& p) { return std::pair(p.at, p.work); });
  std::size_t distinct = 1;
  for (std::size_t i = 1; i < points.size(); ++i)
    distinct += points[i].at != points[i - 1].at || points[i].work != points[i - 1].work ? 1 : 0;
  for (std::size_t drop = 1; at.size() + (with_launch ? 1 : 0) > distinct && at.size() > 1;) {
    at.erase(at.begin() + static_cast<std::ptrdiff_t>(std::min(drop, at.size() - 1)));
    if (++drop >= at.size()) drop = 1;
  }
  Column x = Model(points, at, with_launch).fit();
  // A class in which launch and neighbours explain everything has no rate of its own: the neighbours speak for it.
  for (std::size_t j = 0; j < at.size() && at.size() > 1;) {
    if (x[j] > 0) {
      ++j;
      continue;
    }
    at.erase(at.begin() + static_cast<std::ptrdiff_t>(j));
    x = Model(points, at, with_launch).fit();
    j = 0;
  }
  KindCost cost;
  if (with_launch) cost.launch = Nanos{std::llround(x.back() * 1e9)};
  for (std::size_t j = 0; j < at.size(); ++j) at[j].rate = written_rate(1 / std::max(x[j], 1e-18));
  (products ? cost.flops : cost.bytes) = std::move(at);
  return cost;
}

double relative_error(double predicted, double measured) { return std::abs(predicted / measured - 1); }

/// Every fourth shape by work where nobody has said; the same shape measured twice goes one way.
void choose_held_out(std::vector<MeasuredOp*>& ops) {
  const auto work = [](const MeasuredOp& op) { return std::tuple(op.flops, op.moved); };
  std::ranges::sort(ops, [&](const MeasuredOp* a, const MeasuredOp* b) { return work(*a) < work(*b); });
  std::vector<int> number;
  for (std::size_t i = 0; i < ops.size(); ++i)
    number.push_back(i == 0 ? 0 : number.back() + (work(*ops[i]) == work(*ops[i - 1]) ? 0 : 1));
  constexpr int every = 4, which = 2;
  for (std::size_t i = 0; i < ops.size(); ++i)
    if (!ops[i]->held_out)
      ops[i]->held_out = number.back() + 1 >= every && number[i] % every == which && number[i] != number.back();
}

double constant_seconds(const DeviceProfile& profile, const MeasuredOp& op) {
  if (op.flops.count > 0) return profile.flop_rate > 0 ? flops(op) / profile.flop_rate : 0;
  return profile.byte_rate > 0 ? moved(op) / profile.byte_rate : 0;
}

void fit_constants(DeviceProfile& profile, const std::vector<MeasuredOp>& ops) {
  std::vector<double> flop_rates, byte_rates;
  for (const MeasuredOp& op : ops)
    if (!*op.held_out)
      (op.flops.count > 0 ? flop_rates : byte_rates)
          .push_back((op.flops.count > 0 ? flops(op) : moved(op)) / seconds(op));
  if (!flop_rates.empty()) profile.flop_rate = written_rate(median(std::move(flop_rates)));
  if (!byte_rates.empty()) profile.byte_rate = written_rate(median(std::move(byte_rates)));
}

using Group = std::pair<std::string, bool>;  // kind, is_backward

FittedCost fit_group(const Group& group, const std::vector<MeasuredOp>& ops, DeviceProfile& profile) {
  FittedCost out;
  std::tie(out.kind, out.is_backward) = group;
  std::vector<MeasuredOp> training;
  for (const MeasuredOp& op : ops)
    if (!*op.held_out) training.push_back(op);
  if (training.empty()) throw InputError("every point of '" + out.kind + "' is held out; expected one to fit to");
  out.cost = fit_cost(training);
  std::vector<double> near, far, constant;
  for (const MeasuredOp& op : ops) {
    const Nanos predicted = duration(out.cost, op.flops, op.moved);
    profile.points.push_back({op, predicted});
    (*op.held_out ? far : near).push_back(relative_error(static_cast<double>(predicted.count) * 1e-9, seconds(op)));
    if (*op.held_out) constant.push_back(relative_error(constant_seconds(profile, op), seconds(op)));
  }
  out.training_points = static_cast<int>(near.size());
  out.held_out_points = static_cast<int>(far.size());
  out.training_error = median(std::move(near));
  if (!far.empty()) {
    out.held_out_error = median(std::move(far));
    out.constant_held_out_error = median(std::move(constant));
  }
  return out;
}

}  // namespace

DeviceProfile fit_profile(std::vector<MeasuredOp> ops, std::string name, std::string source) {
  if (ops.empty()) throw InputError("no op times to fit a profile to");
  constexpr std::int64_t longest = 1'000'000'000'000'000;
  for (const MeasuredOp& op : ops) {
    if (op.time.count <= 0 || op.time.count > longest)
      throw InputError("'" + op.kind + "' " + op.shape + " takes " + to_string(op.time) + " ns; expected 1 to 10^15");
    if (op.flops.count <= 0 && op.moved.count <= 0)
      throw InputError("'" + op.kind + "' " + op.shape + " has neither FLOPs nor bytes");
  }
  std::map<Group, std::vector<MeasuredOp*>> groups;
  for (MeasuredOp& op : ops) groups[{op.kind, op.is_backward}].push_back(&op);
  for (auto& [group, members] : groups) choose_held_out(members);
  DeviceProfile profile;
  profile.name = std::move(name);
  profile.source = std::move(source);
  profile.dtype = ops.front().dtype;
  fit_constants(profile, ops);
  for (const auto& [group, members] : groups) {
    std::vector<MeasuredOp> copies;
    for (const MeasuredOp* op : members) copies.push_back(*op);
    profile.costs.push_back(fit_group(group, copies, profile));
  }
  return profile;
}

std::string error_table(const DeviceProfile& profile) {
  const auto cell = [](const std::optional<double>& error) { return error ? percent(*error) : std::string("-"); };
  std::string out = fmt::format("{:<20} {:<8} {:>10} {:>8} {:>11} {:>8} {:>13}\n", "median errors", "", "training", "",
                                "held out", "", "one constant");
  for (const FittedCost& c : profile.costs)
    out += fmt::format("{:<20} {:<8} {:>3} points {:>8} {:>4} shapes {:>8} {:>13}\n", c.kind,
                       c.is_backward ? "backward" : "forward", c.training_points, percent(c.training_error),
                       c.held_out_points, cell(c.held_out_error), cell(c.constant_held_out_error));
  std::map<bool, std::map<std::string, std::vector<double>>> all;  // by whether it has products
  for (const PredictedOp& p : profile.points) {
    auto& of = all[p.op.flops.count > 0];
    const double error = relative_error(static_cast<double>(p.predicted.count) * 1e-9, seconds(p.op));
    of[*p.op.held_out ? "held out" : "training"].push_back(error);
    if (*p.op.held_out) of["constant"].push_back(relative_error(constant_seconds(profile, p.op), seconds(p.op)));
  }
  for (const bool products : {true, false}) {
    auto& of = all[products];
    const auto middle = [&](const char* which) {
      return of[which].empty() ? std::string("-") : percent(median(of[which]));
    };
    if (of["training"].empty()) continue;
    out += fmt::format("{:<29} {:>3} points {:>8} {:>4} shapes {:>8} {:>13}\n",
                       products ? "all with matrix products" : "all others", of["training"].size(), middle("training"),
                       of["held out"].size(), middle("held out"), middle("constant"));
  }
  return out;
}

std::vector<BackwardRatio> backward_ratios(const DeviceProfile& profile) {
  std::map<std::string, std::map<std::string, std::pair<double, double>>> times;  // forward, backward by shape
  for (const PredictedOp& p : profile.points) {
    auto& [forward, backward] = times[p.op.kind][p.op.shape];
    (p.op.is_backward ? backward : forward) += seconds(p.op);
  }
  std::vector<BackwardRatio> out;
  for (const auto& [kind, shapes] : times) {
    std::vector<double> ratios;
    for (const auto& [shape, time] : shapes)
      if (time.first > 0 && time.second > 0) ratios.push_back(time.second / time.first);
    if (ratios.empty()) continue;
    std::ranges::sort(ratios);
    out.push_back({kind, static_cast<int>(ratios.size()), ratios.front(), median(ratios), ratios.back()});
  }
  return out;
}

}  // namespace tidemark
