// What does a build without dygraphs do? The library's own assets give way to those made here without it.

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/tide.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/report/page.hpp"
#include "tidemark/report/sweep_page.hpp"

using namespace tidemark;

TEST_CASE("without dygraphs: a run's page names the package that is missing, and writes nothing") {
  const auto made = test::small_tide();
  const Timeline timeline = simulate(made.step, {});
  const Summary summary = summarize(made.step, timeline, {});
  const std::vector<PageRun> runs = {{"hand", made.step, timeline, summary}};
  std::string text;
  try {
    write_page(runs, [&](std::string_view piece) { text += piece; });
    FAIL("a page was written");
  } catch (const OutputError& error) {
    CHECK(std::string(error.what()).find("install libjs-dygraphs") != std::string::npos);
  }
  CHECK(text.empty());
}

TEST_CASE("without dygraphs: a sweep's page needs none") {
  std::string text;
  write_sweep_page({"study.yaml", {"a"}, "index,a\n0,1\n"}, [&](std::string_view piece) { text += piece; });
  CHECK(text.ends_with("</html>\n"));
}
