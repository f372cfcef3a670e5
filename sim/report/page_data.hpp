/// What does the page know of a run?
#pragma once

#include <string>

#include "tidemark/report/page_run.hpp"

namespace tidemark {

/// A head of JSON (the Summary, words, and which columns follow), then the columns: events, storages, ops and holders
/// as integers. Each of the two parts has its length before it, 4 bytes, the lowest first. A column is a list of
/// LEB128 numbers, zigzag: of each value its difference to the one before.
std::string page_data(const PageRun& run);

}  // namespace tidemark
