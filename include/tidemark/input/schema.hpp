/// What may a scenario look like, for editors and other programs?
#pragma once

#include <string>

namespace tidemark {

/// A JSON Schema (draft 2020-12) of the scenario, made from the tables in keys.hpp. It knows every key, choice and
/// unit; what hangs on two keys at once (lengths of lists, a batch for a chain) only the reader knows.
std::string scenario_schema();

}  // namespace tidemark
