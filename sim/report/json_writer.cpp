#include "tidemark/report/json_writer.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace tidemark {

void JsonWriter::member(std::string_view name, std::string_view text) {
  key(name);
  text_ += json_string(text);
}

void JsonWriter::member(std::string_view name, bool value) {
  key(name);
  text_ += value ? "true" : "false";
}

void JsonWriter::member(std::string_view name, double value) {
  key(name);
  text_ += fmt::format("{}", value);
}

void JsonWriter::member(std::string_view name, Int128 value) {
  key(name);
  text_ += to_string(value);
}

void JsonWriter::null(std::string_view name) {
  key(name);
  text_ += "null";
}

void JsonWriter::element(std::string_view text) {
  start_item();
  text_ += json_string(text);
}

std::string JsonWriter::take() { return std::exchange(text_, {}) + "\n"; }

void JsonWriter::begin(char bracket) {
  if (depth_ > 0) start_item();
  text_ += bracket;
  ++depth_;
  first_ = true;
}

void JsonWriter::begin(std::string_view name, char bracket) {
  key(name);
  text_ += bracket;
  ++depth_;
  first_ = true;
}

void JsonWriter::end(char bracket) {
  --depth_;
  if (!first_) text_.append("\n").append(2 * depth_, ' ');
  text_ += bracket;
  first_ = false;
}

void JsonWriter::start_item() {
  if (!first_) text_ += ',';
  first_ = false;
  text_.append("\n").append(2 * depth_, ' ');
}

void JsonWriter::key(std::string_view name) {
  start_item();
  text_ += json_string(name);
  text_ += ": ";
}

std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string valid_utf8(std::string_view text) { return nlohmann::json::parse(json_string(text)).get<std::string>(); }

}  // namespace tidemark
