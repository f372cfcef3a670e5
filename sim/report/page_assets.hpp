/// Which files does the page carry? Their bytes are put into the program when it is built.
#pragma once

#include <string_view>

namespace tidemark {

extern const std::string_view page_html;
extern const std::string_view page_css;
extern const std::string_view page_js;
extern const std::string_view sweep_html;
extern const std::string_view sweep_js;
extern const std::string_view dygraphs_js;  // empty: it was not there
extern const std::string_view dygraphs_css;
extern const std::string_view dygraphs_version;

}  // namespace tidemark
