#include <charconv>
#include <optional>
#include <string>

#include "commands.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/input/settings_import.hpp"
#include "tidemark/report/output_file.hpp"

namespace tidemark::cli {
namespace {

std::optional<std::int64_t> vocabulary(const std::string& written) {
  if (written.empty()) return {};
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(written.data(), written.data() + written.size(), value);
  if (error != std::errc{} || end != written.data() + written.size() || value <= 0 || value > std::int64_t{1} << 40)
    throw InputError("--vocab must be a positive number of words, not '" + written + "'");
  return value;
}

/// What a reader must know, as comments above the scenario.
std::string commented(const ImportedScenario& imported) {
  std::string text = "# " + imported.framework + "'s settings as a scenario.\n";
  for (const std::string& note : imported.notes) text += "# Note: " + note + ".\n";
  for (const std::string& unused : imported.unused) text += "# Not used: " + unused + "\n";
  return text + imported.scenario;
}

}  // namespace

int import_command(const ImportOptions& options) {
  const ImportedScenario imported = import_settings(options.settings, vocabulary(options.vocab));
  OutputFile file(options.out);
  file.write(commented(imported));
  file.commit();
  return exit_yes;
}

}  // namespace tidemark::cli
