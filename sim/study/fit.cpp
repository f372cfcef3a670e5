#include "tidemark/study/fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tidemark/base/errors.hpp"
#include "tidemark/input/keys.hpp"
#include "tidemark/input/quantities.hpp"
#include "tidemark/input/scenario.hpp"
#include "tidemark/input/settings.hpp"
#include "tidemark/report/holding.hpp"
#include "tidemark/report/text.hpp"
#include "tidemark/study/facts.hpp"
#include "tidemark/study/pipeline.hpp"

namespace tidemark {
namespace {

constexpr std::int64_t above = 8;                // values right above the answer that are simulated too
constexpr int doublings = 3;                     // of the start, where neither it nor less fits
constexpr std::size_t most_events = 20'000'000;  // of one simulation

void check_key(const std::string& path) {
  const SourceLoc where{"--vary " + shown(std::string_view(path))};
  const std::vector<const Key*> keys = keys_at(path);
  if (keys.empty()) throw InputError(where, "no such key of a scenario; expected one such as batch.size, model.layers");
  if (std::ranges::none_of(keys, [](const Key* key) { return key->type == ValueType::integer; }))
    throw InputError(where, "not a whole number; expected a key such as batch.size, batch.sequence, model.layers");
}

DocPtr read_document(const FitRequest& request) {
  DocPtr document = read_yaml(request.scenario, "a scenario (YAML)");
  for (const std::string& set : request.sets) document = with_setting(document, set);
  return document;
}

/// The scenario's own value of the key, where it is written down.
std::optional<std::int64_t> own_value(DocPtr node, const std::string& path) {
  for (std::size_t at = 0; node != nullptr && at <= path.size();) {
    const std::size_t dot = std::min(path.find('.', at), path.size());
    node = node->kind == DocNode::Kind::map ? node->find(path.substr(at, dot - at)) : nullptr;
    at = dot + 1;
  }
  return node != nullptr && node->kind == DocNode::Kind::scalar ? parse_whole(node->text) : std::nullopt;
}

class Search {
 public:
  explicit Search(const FitRequest& request) : request_(request), document_(read_document(request)) {
    answer_.key = request.key;
  }

  FitAnswer find() {
    const std::int64_t start = std::clamp<std::int64_t>(
        request_.start ? *request_.start : own_value(document_, request_.key).value_or(1), 1, request_.most);
    simulate_start(start);
    std::int64_t low = start, high = start;  // `low` fits, 0 is taken to; `high` does not
    while (low > 0 && !at(low).fits) {
      high = low;
      low /= 2;
    }
    if (low == 0) low = fitting_above(start);  // more chunks, or a longer interval, can need less
    if (low >= start) high = first_failing(low);
    while (high - low > 1) {
      const std::int64_t middle = low + (high - low) / 2;
      (at(middle).fits ? low : high) = middle;
    }
    if (low > 0) look_above(low);
    for (const auto& [value, trial] : trials_) answer_.trials.push_back(trial);
    return std::move(answer_);
  }

 private:
  Scenario scenario_at(std::int64_t value) const {
    const DocPtr document =
        with_value(document_, request_.key, std::to_string(value), fmt::format("--vary {}={}", request_.key, value));
    Scenario scenario = read_scenario_document(document, request_.scenario);
    if (request_.budget) scenario.budget = request_.budget;
    return scenario;
  }

  FitTrial simulate_at(std::int64_t value) {
    const Scenario scenario = scenario_at(value);
    const Run result = run(scenario);
    ScenarioFacts facts = plain_facts(scenario);
    facts.top = 0;
    const Summary summary = summarize(result.step, result.timeline, facts);
    if (!summary.fits)
      throw InputError(
          "fit needs a limit: --budget SIZE, 'budget' or a device in the scenario, or an allocator's "
          "capacity");
    const Moment& peak = summary.peak().peak;
    FitTrial trial{.value = value,
                   .fits = *summary.fits,
                   .peak = peak.bytes,
                   .reserved = summary.reserved_peak,
                   .margin = summary.margin,
                   .peak_at = fmt::format(
                       "{}, step {}", peak.op.empty() ? "at the start" : phase_of_work(peak.phase, peak.op, peak.layer),
                       peak.step),
                   .why = "",
                   .events = summary.events};
    if (summary.out_of_memory)
      trial.why = out_of_memory_text(*summary.out_of_memory);
    else if (!trial.fits)
      trial.why = fmt::format("does not fit, {} above: {}{} ({} B), {}", pretty(Bytes{} - *summary.margin),
                              summary.reserved_peak ? "reserved " : "live peak ",
                              pretty(summary.reserved_peak.value_or(peak.bytes)),
                              grouped(summary.reserved_peak.value_or(peak.bytes).count), trial.peak_at);
    answer_.scenario = summary.scenario;
    answer_.by = *summary.by;
    answer_.limit = summary.limit;
    answer_.limit_name = summary.limit_name;
    answer_.non_torch = summary.non_torch;
    return trial;
  }

  /// The start is the user's own: what is wrong with it is an error, not an answer.
  void simulate_start(std::int64_t start) { trials_.emplace(start, simulate_at(start)); }

  const FitTrial& at(std::int64_t value) {
    if (const auto known = trials_.find(value); known != trials_.end()) return known->second;
    FitTrial trial{.value = value};
    try {
      trial = simulate_at(value);
    } catch (const InputError& error) {
      trial.why = std::string("refused: ") + error.what();
    }
    return trials_.emplace(value, std::move(trial)).first->second;
  }

  /// The first doubling of `start` that fits; 0 when none of the next few does.
  std::int64_t fitting_above(std::int64_t start) {
    std::int64_t value = start;
    for (int doubled = 0; doubled < doublings && value <= request_.most / 2; ++doubled)
      if (at(value *= 2).fits) return value;
    return 0;
  }

  /// Doubles `low` as long as it fits. One past the last value when none fails.
  std::int64_t first_failing(std::int64_t& low) {
    for (;;) {
      const FitTrial& here = at(low);
      if (low == request_.most) {
        answer_.ended = fmt::format("every value that was tried fits; none above {} was", low);
        return low + 1;
      }
      if (here.events > most_events / 2) {
        answer_.ended = fmt::format("none above {} was tried: its simulation has {} events", low,
                                    grouped(static_cast<std::int64_t>(here.events)));
        return low + 1;
      }
      const std::int64_t next = low > request_.most / 2 ? request_.most : 2 * low;
      if (!at(next).fits) return next;
      low = next;
    }
  }

  void look_above(std::int64_t best) {
    if (answer_.ended.empty())
      for (std::int64_t value = best + 1; value <= std::min(best + above, request_.most); ++value)
        if (at(value).fits) best = value;
    answer_.best = at(best);
    if (!answer_.ended.empty()) return;
    answer_.checked_above = std::min(above, request_.most - best);
    if (best < request_.most) answer_.failing = at(best + 1);
  }

  const FitRequest& request_;
  DocPtr document_;
  FitAnswer answer_;
  std::map<std::int64_t, FitTrial> trials_;
};

}  // namespace

FitAnswer find_fit(const FitRequest& request) {
  check_key(request.key);
  FitAnswer answer = Search(request).find();
  if (!answer.best && !answer.trials.empty()) answer.failing = answer.trials.front();
  return answer;
}

}  // namespace tidemark
