#include "tidemark/input/tables.hpp"

#include <fmt/core.h>
// It cuts file names at 255 bytes with strncpy, on purpose.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstringop-truncation"
#include <libfccp/csv.h>
#pragma GCC diagnostic pop

#include <algorithm>
#include <array>
#include <utility>
#include <variant>

#include "tidemark/input/document.hpp"
#include "tidemark/input/yaml_map.hpp"

namespace tidemark {
namespace {

constexpr std::int64_t max_table_bytes = 256 << 20;

using Cell = void (*)(LayerRow&, std::string_view, std::optional<std::int64_t>);

/// A column: its name, and how a cell fills the row. Numbers arrive parsed.
struct Column {
  std::string_view name;
  bool is_number;
  void (*fill)(LayerRow& row, std::string_view text, std::int64_t number);
};

constexpr std::array<Column, 18> columns = {{
    {"id", false, [](LayerRow& r, std::string_view t, std::int64_t) { r.id = t; }},
    {"inputs", false, [](LayerRow& r, std::string_view t, std::int64_t) { r.inputs = t; }},
    {"name", false, [](LayerRow& r, std::string_view t, std::int64_t) { r.cost.name = t; }},
    {"type", false, [](LayerRow& r, std::string_view t, std::int64_t) { r.cost.type = t; }},
    {"attention_fraction", false, [](LayerRow&, std::string_view, std::int64_t) {}},
    {"layer_activation_bytes", true,
     [](LayerRow& r, std::string_view, std::int64_t n) { r.cost.layer_activation = {n}; }},
    {"boundary_bytes", true, [](LayerRow& r, std::string_view, std::int64_t n) { r.boundary = {n}; }},
    {"output_bytes", true, [](LayerRow& r, std::string_view, std::int64_t n) { r.cost.output = {n}; }},
    {"gradient_bytes", true, [](LayerRow& r, std::string_view, std::int64_t n) { r.cost.gradient = {n}; }},
    {"forward_workspace_bytes", true,
     [](LayerRow& r, std::string_view, std::int64_t n) { r.cost.forward_workspace = {n}; }},
    {"backward_workspace_bytes", true,
     [](LayerRow& r, std::string_view, std::int64_t n) { r.cost.backward_workspace = {n}; }},
    {"parameter_bytes", true, [](LayerRow& r, std::string_view, std::int64_t n) { r.cost.parameters = {n}; }},
    {"forward_flops", true, [](LayerRow& r, std::string_view, std::int64_t n) { r.cost.forward_flops = {n}; }},
    {"backward_flops", true, [](LayerRow& r, std::string_view, std::int64_t n) { r.cost.backward_flops = {n}; }},
    {"weight_time_ns", true, [](LayerRow& r, std::string_view, std::int64_t n) { r.cost.weight_time = {n}; }},
    {"weight_activation_bytes", true,
     [](LayerRow& r, std::string_view, std::int64_t n) { r.cost.weight_activation = {n}; }},
    {"forward_time_ns", true, [](LayerRow& r, std::string_view, std::int64_t n) { r.cost.forward_time = {n}; }},
    {"backward_time_ns", true, [](LayerRow& r, std::string_view, std::int64_t n) { r.cost.backward_time = {n}; }},
}};

using Reader = io::CSVReader<columns.size(), io::trim_chars<' ', '\t', '\r'>, io::double_quote_escape<',', '"'>>;
using Cells = std::array<char*, columns.size()>;

template <std::size_t... I>
void read_header(Reader& reader, std::index_sequence<I...>) {
  reader.read_header(io::ignore_missing_column, std::string(columns[I].name)...);
}
template <std::size_t... I>
bool read_row(Reader& reader, Cells& cells, std::index_sequence<I...>) {
  return reader.read_row(cells[I]...);
}
constexpr auto every = std::make_index_sequence<columns.size()>{};

/// The text of a line, counted from 1.
std::string_view line_of(std::string_view text, int line) {
  for (; line > 1; --line) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return "";
    text.remove_prefix(end + 1);
  }
  return text.substr(0, text.find_first_of("\r\n"));
}

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

void fill_cell(LayerRow& row, const Column& column, std::string_view text, const SourceLoc& where) {
  const auto must_be = [&](std::string_view expected) {
    throw InputError(where, fmt::format("column '{}' must be {}, not '{}'", column.name, expected, shown(text)));
  };
  if (column.is_number) {
    const auto number = parse_whole(text);
    if (!number) must_be("a whole number");
    column.fill(row, text, *number);
  } else if (column.name == "attention_fraction") {
    const auto value = parse_decimal(text);
    if (!value || value->digits > value->divisor) must_be("a decimal number from 0 to 1");
    row.attention_fraction = *value;
  } else {
    if (column.name == "type" && text != "attention" && text != "ffn" && text != "other")
      must_be("one of attention, ffn, other");
    if (column.name == "id" && text.empty()) must_be("a name");
    column.fill(row, text, 0);
  }
}

class TableReader {
 public:
  TableReader(const std::string& path, const std::string& text)
      : path_(path), text_(text), reader_(path, text.data(), text.data() + text.size()) {}

  LayerTable read(const std::vector<std::string>& required, const std::vector<std::string>& optional) {
    LayerTable table{path_, {}, {}};
    try {
      read_header(reader_, every);
      accept_columns(table, required, optional);
      Cells cells{};
      while (read_row(reader_, cells, every)) {
        LayerRow row{.line = static_cast<int>(reader_.get_file_line())};
        const SourceLoc where = table.where(row);
        if (is_blank(line_of(text_, row.line))) throw InputError(where, blank(table));
        for (std::size_t i = 0; i < columns.size(); ++i)
          if (cells[i] != nullptr) fill_cell(row, columns[i], cells[i], where);
        table.rows.push_back(std::move(row));
      }
    } catch (const io::error::base& error) {
      refuse(error, table, required, optional);
    }
    if (table.rows.empty()) throw InputError({path_, 1, 0}, "no rows below the header");
    return table;
  }

 private:
  static std::string blank(const LayerTable& table) {
    return fmt::format("blank line; expected {} columns", table.columns.size());
  }

  void accept_columns(LayerTable& table, const std::vector<std::string>& required,
                      const std::vector<std::string>& optional) {
    for (const Column& column : columns)
      if (reader_.has_column(std::string(column.name))) table.columns.emplace_back(column.name);
    for (const std::string& name : required)
      if (!table.has(name))
        throw InputError({path_, 1, 0}, fmt::format("missing column '{}'; expected {}", name, joined(required)));
    std::vector<std::string> known = required;
    known.insert(known.end(), optional.begin(), optional.end());
    for (const std::string& name : table.columns)
      if (std::ranges::find(known, name) == known.end())
        throw InputError({path_, 1, 0},
                         fmt::format("column '{}' has no meaning here; expected some of {}", name, joined(known)));
  }

  /// The library's errors in our words.
  [[noreturn]] void refuse(const io::error::base& error, const LayerTable& table,
                           const std::vector<std::string>& required, const std::vector<std::string>& optional) const {
    std::vector<std::string> known = required;
    known.insert(known.end(), optional.begin(), optional.end());
    const SourceLoc header{path_, 1, 0};
    const SourceLoc here{path_, static_cast<int>(reader_.get_file_line()), 0};
    if (is_blank(line_of(text_, here.line)))
      throw InputError(here, table.columns.empty() ? "blank line; expected a header" : blank(table));
    if (const auto* extra = dynamic_cast<const io::error::extra_column_in_header*>(&error))
      throw InputError(header, fmt::format("unknown column '{}'{}", shown(std::string_view(extra->column_name)),
                                           did_you_mean(extra->column_name, known)));
    if (const auto* twice = dynamic_cast<const io::error::duplicated_column_in_header*>(&error))
      throw InputError(header, fmt::format("repeated column '{}'", twice->column_name));
    const std::string expected = fmt::format("; expected {} columns", table.columns.size());
    if (dynamic_cast<const io::error::too_few_columns*>(&error) != nullptr)
      throw InputError(here, "too few columns" + expected);
    if (dynamic_cast<const io::error::too_many_columns*>(&error) != nullptr)
      throw InputError(here, "too many columns" + expected);
    if (dynamic_cast<const io::error::escaped_string_not_closed*>(&error) != nullptr)
      throw InputError(here, "a quoted text is not closed");
    throw InputError(here, "not a CSV row");
  }

  std::string path_;
  std::string_view text_;
  Reader reader_;
};

}  // namespace

bool LayerTable::has(std::string_view column) const { return std::ranges::find(columns, column) != columns.end(); }

LayerTable read_layer_table(const std::string& path, const std::vector<std::string>& required,
                            const std::vector<std::string>& optional) {
  const std::string text = read_text(path, max_table_bytes, "a layer table (CSV)");
  return TableReader(path, text).read(required, optional);
}

}  // namespace tidemark
