/// How does one HTML file carry text, data and programs, so that nothing in them does harm?
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "tidemark/report/csv.hpp"

namespace tidemark {

/// A text as HTML shows it; without control characters, invalid UTF-8 as U+FFFD.
std::string html_text(std::string_view text);
/// Appends a part with its length before it: 4 bytes, the lowest first.
void add_part(std::string& out, std::string_view part);
/// Deflated, then base64: no byte of the data can end the element it stands in.
std::string packed(const std::string& data);
/// Hands on the template with each @NAME@ replaced.
void fill_page(std::string_view page, const std::map<std::string_view, std::string_view>& parts, const TextSink& sink);

}  // namespace tidemark
