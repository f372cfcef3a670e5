/// How does a test read one of its own tables? The first line that is not a '#' comment names the columns.
#pragma once

#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tidemark::test {

using Row = std::map<std::string, std::string>;

inline std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::string part;
  for (const char c : text)
    if (c == at)
      parts.push_back(std::exchange(part, {}));
    else
      part += c;
  parts.push_back(part);
  return parts;
}

inline std::vector<Row> table(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + " cannot be read: tests run in the source tree");
  std::vector<std::string> columns;
  std::vector<Row> rows;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    const std::vector<std::string> fields = split(line, ',');
    if (columns.empty()) {
      columns = fields;
      continue;
    }
    if (fields.size() != columns.size()) throw std::runtime_error(path + ": a row of another length: " + line);
    Row row;
    for (std::size_t i = 0; i < fields.size(); ++i) row[columns[i]] = fields[i];
    rows.push_back(row);
  }
  return rows;
}

}  // namespace tidemark::test
