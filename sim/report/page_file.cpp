#include "page_file.hpp"

#include <zlib.h>

#include <cstdint>

#include "tidemark/base/errors.hpp"
#include "tidemark/report/terminal.hpp"

namespace tidemark {
namespace {

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

std::string html_text(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

void add_part(std::string& out, std::string_view part) {
  for (unsigned shift = 0; shift < 32; shift += 8) out += static_cast<char>(part.size() >> shift & 0xFFU);
  out += part;
}

std::string packed(const std::string& data) { return base64(deflated(data)); }

void fill_page(std::string_view page, const std::map<std::string_view, std::string_view>& parts, const TextSink& sink) {
  for (std::size_t at = page.find('@'); at != std::string_view::npos; at = page.find('@')) {
    const std::size_t end = page.find('@', at + 1);
    check(end != std::string_view::npos, "a page's template closes each @NAME@");
    const auto part = parts.find(page.substr(at + 1, end - at - 1));
    check(part != parts.end(), "a page's template names what there is");
    sink(page.substr(0, at));
    sink(part->second);
    page.remove_prefix(end + 1);
  }
  sink(page);
}

}  // namespace tidemark
