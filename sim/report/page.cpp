#include "tidemark/report/page.hpp"

#include <zlib.h>

#include <map>
#include <string>

#include "page_assets.hpp"
#include "page_data.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/report/json_writer.hpp"

namespace tidemark {
namespace {

constexpr std::size_t compress_above = std::size_t{1} << 16;

std::string html_text(const std::string& text) {
  std::string out;
  for (const char c : valid_utf8(text)) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

/// JSON that may stand in a script element: no "<" ends it or opens a comment.
std::string without_tags(const std::string& json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  }
  return out;
}

std::string deflated(const std::string& text) {
  uLongf size = compressBound(static_cast<uLong>(text.size()));
  std::string out(size, '\0');
  const int status = compress2(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(text.data()),
                               static_cast<uLong>(text.size()), 6);
  check(status == Z_OK, "zlib compresses the page's data");
  out.resize(size);
  return out;
}

std::string base64(const std::string& bytes) {
  constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k)
      group = group << 8U | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k) out += i + k <= bytes.size() ? letters[group >> (18 - 6 * k) & 63U] : '=';
  }
  return out;
}

}  // namespace

void write_page(const Step& step, const Timeline& timeline, const Summary& summary, const TextSink& sink) {
  if (dygraphs_js.empty())
    throw OutputError("this build of tidemark has no charts for --report: install libjs-dygraphs and build it again");
  std::string data = page_data(step, timeline, summary);
  const bool large = data.size() > compress_above;
  data = large ? base64(deflated(data)) : without_tags(data);
  const std::string title = html_text(summary.scenario.empty() ? "Tidemark" : summary.scenario + " · Tidemark");
  const std::string css = std::string(dygraphs_css) + std::string(page_css);
  const std::map<std::string_view, std::string_view> parts = {
      {"TITLE", title},
      {"CSS", css},
      {"ENCODING", large ? "deflate" : "json"},
      {"DATA", data},
      {"JS", page_js},
      {"DYGRAPHS", dygraphs_js},
      {"DYGRAPHS_VERSION", dygraphs_version},
  };
  std::string_view rest = page_html;
  for (std::size_t at = rest.find('@'); at != std::string_view::npos; at = rest.find('@')) {
    const std::size_t end = rest.find('@', at + 1);
    check(end != std::string_view::npos, "the page's template closes each @NAME@");
    const auto part = parts.find(rest.substr(at + 1, end - at - 1));
    check(part != parts.end(), "the page's template names what there is");
    sink(rest.substr(0, at));
    sink(part->second);
    rest.remove_prefix(end + 1);
  }
  sink(rest);
}

}  // namespace tidemark
