/// What does each allocation, each op look like as one row?
///
/// RFC 4180 with "\n" ends: a field with a comma, a quote or a line break stands in quotes. An absent value is an
/// empty field. docs/output.md explains each column.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tidemark/engine/timeline.hpp"
#include "tidemark/step/step.hpp"

namespace tidemark {

/// Takes the text piece by piece, in order; may throw to stop the export.
using TextSink = std::function<void(std::string_view)>;

/// One row an alloc or free, in the timeline's order; what is alive at the start comes first. The last two columns are
/// there with an allocator model only.
void write_timeline_csv(const Step& step, const Timeline& timeline, const TextSink& sink);
/// One row an op, in host issue order.
void write_ops_csv(const Step& step, const Timeline& timeline, const TextSink& sink);

/// A text as one CSV field, in quotes where it needs them.
std::string csv_field(std::string_view text);

}  // namespace tidemark
