#include <charconv>

#include "commands.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/study/fit.hpp"

namespace tidemark::cli {
namespace {

std::int64_t positive(const std::string& option, const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || text[0] == '0')
    throw InputError(option + " must be a whole number above 0, not '" + text + "'");
  return value;
}

}  // namespace

int fit_command(const FitOptions& options) {
  FitRequest request{.scenario = options.scenario, .key = options.vary, .sets = options.sets};
  if (!options.budget.empty()) {
    request.budget = parse_bytes(options.budget);
    if (!request.budget)
      throw InputError("--budget must be a size with a unit, such as 40GiB, not '" + options.budget + "'");
  }
  if (!options.from.empty()) request.start = positive("--from", options.from);
  if (!options.most.empty()) request.most = positive("--most", options.most);
  const FitAnswer answer = find_fit(request);
  print(options.json ? fit_json(answer) : fit_text(answer));
  return answer.best ? exit_yes : exit_no;
}

}  // namespace tidemark::cli
