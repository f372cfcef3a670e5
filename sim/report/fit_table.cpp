#include "tidemark/report/fit_table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tidemark/report/json_writer.hpp"
#include "tidemark/report/terminal.hpp"
#include "tidemark/report/text.hpp"

namespace tidemark {
namespace {

std::string figures(const FitTrial& trial) {
  std::string out;
  if (trial.peak)
    out = fmt::format("live peak {} ({} B), {}", pretty(*trial.peak), grouped(trial.peak->count),
                      printable(trial.peak_at));
  if (trial.reserved)
    out = fmt::format("{} ({} B) reserved; ", pretty(*trial.reserved), grouped(trial.reserved->count)) + out;
  return out;
}

void write_trial(JsonWriter& out, const FitTrial& trial) {
  out.member("value", trial.value);
  out.member("fits", trial.fits);
  out.member("peak_bytes", trial.peak);
  out.member("reserved_peak_bytes", trial.reserved);
  out.member("margin_bytes", trial.margin);
  out.name("why", trial.why);
}

void write_trial(JsonWriter& out, std::string_view key, const std::optional<FitTrial>& trial) {
  if (!trial) return out.null(key);
  out.begin_object(key);
  write_trial(out, *trial);
  out.end_object();
}

}  // namespace

std::vector<std::int64_t> FitAnswer::exceptions() const {
  std::vector<std::int64_t> out;
  for (const FitTrial& trial : trials)
    if (best && !trial.fits && trial.value < best->value) out.push_back(trial.value);
  return out;
}

std::string fit_text(const FitAnswer& answer) {
  std::string out = printable(answer.scenario) + "\n";
  const std::string limit =
      answer.limit ? fmt::format("the {} of {}", pretty(*answer.limit), printable(answer.limit_name)) : "the allocator";
  if (answer.best) {
    out += fmt::format("{} {} is the largest that fits {}, by {} bytes\n", answer.key, answer.best->value, limit,
                       answer.by);
    if (answer.non_torch.count > 0)
      out += fmt::format("({} outside the framework taken off)\n", pretty(answer.non_torch));
    out += fmt::format("{:>10}  fits, {} left: {}\n", answer.best->value,
                       answer.best->margin ? pretty(*answer.best->margin) : "?", figures(*answer.best));
  } else {
    out += fmt::format("no value of {} fits {}, by {} bytes\n", answer.key, limit, answer.by);
  }
  if (answer.failing) out += fmt::format("{:>10}  {}\n", answer.failing->value, printable(answer.failing->why));
  if (!answer.ended.empty()) out += answer.ended + "\n";
  out += fmt::format("{} values simulated", answer.trials.size());
  if (answer.checked_above > 1)
    out += fmt::format("; none of the {} right above {} fits", answer.checked_above, answer.best->value);
  out += "\n";
  if (const auto exceptions = answer.exceptions(); !exceptions.empty())
    out += fmt::format("warning: not monotonic: {} {} not fit\n", fmt::join(exceptions, ", "),
                       exceptions.size() == 1 ? "does" : "do");
  return out;
}

std::string fit_json(const FitAnswer& answer) {
  JsonWriter out;
  out.begin_object();
  out.member("scenario", answer.scenario);
  out.member("key", answer.key);
  out.member("value", answer.best ? std::optional(answer.best->value) : std::nullopt);
  out.member("fits_by", answer.by);
  out.member("limit_bytes", answer.limit);
  out.member("non_torch_bytes", answer.non_torch);
  write_trial(out, "best", answer.best);
  write_trial(out, "failing", answer.failing);
  out.member("checked_above", answer.checked_above);
  out.name("ended", answer.ended);
  out.member("monotonic", answer.exceptions().empty());
  out.begin_array("trials");
  for (const FitTrial& trial : answer.trials) {
    out.begin_object();
    write_trial(out, trial);
    out.end_object();
  }
  out.end_array();
  out.end_object();
  return out.take();
}

}  // namespace tidemark
