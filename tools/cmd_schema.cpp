#include "commands.hpp"
#include "tidemark/input/schema.hpp"

namespace tidemark::cli {

int schema_command() {
  print(scenario_schema());
  return exit_yes;
}

}  // namespace tidemark::cli
