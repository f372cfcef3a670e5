#include "tidemark/report/page.hpp"

#include <string>

#include "page_assets.hpp"
#include "page_data.hpp"
#include "page_file.hpp"
#include "tidemark/base/errors.hpp"

namespace tidemark {

void write_page(std::span<const PageRun> runs, const TextSink& sink) {
  if (dygraphs_js.empty())
    throw OutputError("this build of tidemark has no charts for --report: install libjs-dygraphs and build it again");
  check(!runs.empty() && runs.size() <= most_page_runs, "a page has one to four runs");
  std::string data;
  for (const PageRun& run : runs) data += page_data(run);
  data = packed(data);
  const std::string& name = runs.front().summary.scenario;
  const std::string title = html_text(name.empty() ? "Tidemark" : name + " · Tidemark");
  fill_page(page_html,
            {{"TITLE", title},
             {"DYGRAPHS_CSS", dygraphs_css},
             {"CSS", page_css},
             {"DATA", data},
             {"JS", page_js},
             {"DYGRAPHS", dygraphs_js},
             {"DYGRAPHS_VERSION", dygraphs_version}},
            sink);
}

}  // namespace tidemark
