#include "tidemark/report/sweep_page.hpp"

#include "page_assets.hpp"
#include "page_file.hpp"
#include "tidemark/report/json_writer.hpp"

namespace tidemark {

void write_sweep_page(const SweepPage& page, const TextSink& sink) {
  JsonWriter head;
  head.begin_object();
  head.member("study", page.study);
  head.begin_array("axes");
  for (const std::string& axis : page.axes) head.element(axis);
  head.end_array();
  head.end_object();
  std::string data;
  add_part(data, head.take());
  add_part(data, page.csv);
  data = packed(data);
  const std::string title = html_text(page.study + " · Tidemark");
  fill_page(sweep_html, {{"TITLE", title}, {"CSS", page_css}, {"DATA", data}, {"JS", sweep_js}}, sink);
}

}  // namespace tidemark
