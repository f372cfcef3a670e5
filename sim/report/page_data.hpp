/// What does the page draw?
#pragma once

#include <string>

#include "tidemark/engine/timeline.hpp"
#include "tidemark/report/summary.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

/// One JSON object: the Summary, and events, storages, ops and holders as columns of integers.
std::string page_data(const Step& step, const Timeline& timeline, const Summary& summary);

}  // namespace tidemark
