/// How is a simulated step compared with a recorded one, event for event?
#pragma once

#include <string>
#include <vector>

#include "tidemark/step/step.hpp"

namespace tidemark::test {

/// The last step's events in the recording's form: "+bytes", and "-number" of what was allocated in this step. `live`
/// blocks are there at its start and take the first numbers.
std::vector<std::string> events_of(const Step& step, std::size_t live);

/// Where two streams part, with what stands around; empty when they are the same.
std::string difference(const std::vector<std::string>& simulated, const std::vector<std::string>& recorded);

}  // namespace tidemark::test
