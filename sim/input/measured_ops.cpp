#include "tidemark/input/measured_ops.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "tidemark/base/errors.hpp"
#include "tidemark/input/document.hpp"
#include "tidemark/input/quantities.hpp"

namespace tidemark {
namespace {

using Json = nlohmann::json;
constexpr std::int64_t max_table_bytes = 256 << 20;

/// A CSV whose columns are found by name.
class Table {
 public:
  explicit Table(const std::string& path) : path_(path), text_(read_text(path, max_table_bytes, "op times (CSV)")) {
    next();
    for (std::size_t i = 0; i < cells_.size(); ++i)
      if (!columns_.emplace(cells_[i], i).second) fail(fmt::format("column '{}' stands twice", shown(cells_[i])));
    width_ = cells_.size();
  }

  /// The next row; false at the end.
  bool row() {
    if (at_ == text_.size()) return false;
    next();
    if (cells_.size() == 1 && cells_[0].empty()) fail("a blank line; expected a row or the end of the file");
    if (cells_.size() != width_) fail(fmt::format("{} cells; expected {}, as in the header", cells_.size(), width_));
    return true;
  }

  bool has(const std::string& column) const { return columns_.contains(column); }
  bool has_all(const std::vector<std::string>& columns) const {
    return std::ranges::all_of(columns, [&](const std::string& c) { return has(c); });
  }
  const std::string& cell(const std::string& column) const { return cells_[columns_.at(column)]; }
  std::string cell_or(const std::string& column, const std::string& fallback) const {
    return has(column) ? cell(column) : fallback;
  }

  std::int64_t whole(const std::string& column, std::int64_t least = 0) const {
    const auto value = parse_whole(cell(column));
    if (!value || *value < least)
      fail(fmt::format("'{}' must be a whole number from {}, not '{}'", column, least, shown(cell(column))));
    return *value;
  }
  /// A decimal above 0, exponents allowed.
  double positive(const std::string& column) const {
    const std::string& text = cell(column);
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !(value > 0) || !std::isfinite(value))
      fail(fmt::format("'{}' must be a number above 0, not '{}'", column, shown(text)));
    return value;
  }
  Nanos milliseconds(const std::string& column) const {
    const double nanos = positive(column) * 1e6;
    if (nanos > 1e18) fail(fmt::format("'{}' is past {} ms", column, 1e12));
    return Nanos{std::max<std::int64_t>(1, std::llround(nanos))};
  }
  [[noreturn]] void fail(const std::string& message) const { throw InputError({path_, row_line_, 0}, message); }

 private:
  void next() {
    cells_.clear();
    row_line_ = line_;
    while (read_cell() == ',') {
    }
    ++line_;
  }

  /// Returns what ended it, a comma or a line's end.
  char read_cell() {
    std::string& cell = cells_.emplace_back();
    if (at_ < text_.size() && text_[at_] == '"') {
      for (++at_;; ++at_) {
        if (at_ >= text_.size() || text_[at_] == '\n') fail("a quoted text is not closed on its line");
        if (text_[at_] == '"' && text_[++at_] != '"') break;
        cell += text_[at_];
      }
    }
    for (; at_ < text_.size() && text_[at_] != ',' && text_[at_] != '\n'; ++at_)
      if (text_[at_] != '\r') cell += text_[at_];
    if (at_ == text_.size()) fail("the file ends in the middle of a line: it has been cut off");
    return text_[at_++];
  }

  std::string path_, text_;
  std::size_t at_ = 0, width_ = 0;
  int line_ = 1, row_line_ = 1;
  std::vector<std::string> cells_;
  std::map<std::string, std::size_t> columns_;
};

DType dtype_of(const Table& table, std::string name) {
  if (name.starts_with("torch.")) name.erase(0, 6);
  const auto type = parse_dtype(name);
  if (!type)
    table.fail(fmt::format("unknown data type '{}'; expected one of: {}", shown(name), fmt::join(dtype_names, ", ")));
  return *type;
}

bool is_backward(const Table& table, const std::string& column, std::string_view forward, std::string_view backward) {
  const std::string& text = table.cell(column);
  if (text != forward && text != backward)
    table.fail(fmt::format("'{}' must be {} or {}, not '{}'", column, forward, backward, shown(text)));
  return text == backward;
}

// ---- our own columns

const std::vector<std::string> own_columns = {"kind", "direction", "shape", "flops", "bytes_moved", "time_ns"};

MeasuredOp own_row(const Table& table) {
  MeasuredOp op;
  op.kind = table.cell("kind");
  if (op.kind.empty()) table.fail("'kind' must be a name");
  op.is_backward = is_backward(table, "direction", "forward", "backward");
  op.shape = table.cell("shape");
  op.device = table.cell_or("device", "");
  op.provider = table.cell_or("provider", "");
  op.dtype = dtype_of(table, table.cell_or("dtype", "float32"));
  op.flops = Flops{table.whole("flops")};
  op.moved = Bytes{table.whole("bytes_moved")};
  if (op.flops.count == 0 && op.moved.count == 0) table.fail("neither 'flops' nor 'bytes_moved' is above 0");
  op.time = Nanos{table.whole("time_ns", 1)};
  if (table.has("median_ns") && !table.cell("median_ns").empty()) op.median = Nanos{table.whole("median_ns", 1)};
  if (table.has("held_out") && !table.cell("held_out").empty()) op.held_out = is_backward(table, "held_out", "0", "1");
  return op;
}

// ---- llm.c, float32

const std::vector<std::string> llmc_columns = {"hidden", "heads", "seq",   "batch",  "padded_vocab", "phase",
                                               "op",     "shape", "flops", "min_ms", "median_ms"};

/// The elements its kernels read and write, by op: of batch x seq x hidden (of the four times wider ffn for gelu), of
/// batch x seq x vocab, of one row.
struct LlmcOp {
  std::string_view op, kind;
  std::int64_t hidden = 0, vocab = 0, row = 0;
};
constexpr LlmcOp llmc_ops[] = {
    {"encoder_forward", "embedding", 2},
    {"encoder_backward", "embedding", 3},
    {"layernorm_forward", "layer_norm", 2},
    {"layernorm_backward", "layer_norm", 4},
    {"residual_forward", "add", 3},
    {"residual_backward", "add", 5},
    {"gelu_forward", "gelu", 8},
    {"gelu_backward", "gelu", 12},
    {"softmax_forward", "softmax", 0, 2},
    {"crossentropy_softmax_backward", "cross_entropy", 0, 2},
    {"crossentropy_forward", "nll_loss", 0, 0, 2},
};

/// "M=512 N=1024 K=256": the extents in that order.
std::vector<std::int64_t> extents(const Table& table, const std::vector<std::string>& names) {
  std::vector<std::int64_t> out;
  const std::string shape = ' ' + table.cell("shape") + ' ';
  for (const std::string& name : names) {
    const std::size_t at = shape.find(' ' + name + '=');
    const std::size_t begin = at + name.size() + 2;
    const auto value =
        at == std::string::npos ? std::nullopt : parse_whole(shape.substr(begin, shape.find(' ', begin) - begin));
    if (!value || *value > 1'000'000'000)
      table.fail(fmt::format("'shape' must hold {}=N, not '{}'", name, shown(table.cell("shape"))));
    out.push_back(*value);
  }
  return out;
}

MeasuredOp llmc_row(const Table& table) {
  constexpr std::int64_t item = 4, most = 1'000'000;
  const std::string& name = table.cell("op");
  for (const char* column : {"hidden", "heads", "seq", "batch", "padded_vocab"})
    if (table.whole(column, 1) > most) table.fail(fmt::format("'{}' is past {}", column, most));
  const std::int64_t rows = table.whole("batch") * table.whole("seq");
  const std::int64_t elements = rows * table.whole("hidden");
  MeasuredOp op;
  op.is_backward = is_backward(table, "phase", "fwd", "bwd");
  op.shape = table.cell("shape");
  op.time = table.milliseconds("min_ms");
  op.median = table.milliseconds("median_ms");
  if (name.starts_with("matmul_")) {
    const std::vector<std::int64_t> mnk = extents(table, {"M", "N", "K"});
    const std::int64_t out = mnk[0] * mnk[1], in = mnk[0] * mnk[2], weight = mnk[1] * mnk[2];
    op.kind = "linear";
    op.flops = Flops{table.whole("flops", 1)};
    op.moved = Bytes{item * (op.is_backward ? out + 2 * in + 2 * weight : out + in + weight)};
    return op;
  }
  if (name.starts_with("attention_")) {  // writes the scores and their softmax
    const std::int64_t scores = rows * table.whole("seq") * table.whole("heads");
    op.kind = "attention";
    op.flops = Flops{table.whole("flops", 1)};
    op.moved = Bytes{item * (op.is_backward ? 8 * elements + 4 * scores : 4 * elements + 2 * scores)};
    return op;
  }
  const auto* known = std::ranges::find(llmc_ops, name, &LlmcOp::op);
  if (known == std::end(llmc_ops)) {
    op.kind = name;
    return op;
  }
  op.kind = known->kind;
  op.moved =
      Bytes{item * (known->hidden * elements + known->vocab * rows * table.whole("padded_vocab") + known->row * rows)};
  op.shape = fmt::format("rows={} C={}", rows, known->vocab > 0 ? table.cell("padded_vocab") : table.cell("hidden"));
  return op;
}

// ---- Liger-Kernel

const std::vector<std::string> liger_columns = {"kernel", "provider", "mode",   "metric", "unit",
                                                "x_name", "x_value",  "median", "config", "gpu"};

/// Tensors of rows x columns that a kernel reads and writes; the columns are `x_name`'s value or in `config`.
struct LigerKernel {
  std::string_view name, kind;
  std::vector<std::string_view> rows;
  std::string_view columns;
  std::int64_t forward, backward;
};
const std::vector<LigerKernel>& liger_kernels() {
  static const std::vector<LigerKernel> table = {
      {"cross_entropy", "cross_entropy", {"B", "T"}, "V", 1, 2},
      {"layer_norm", "layer_norm", {"M"}, "N", 2, 3},
      {"rms_norm", "rms_norm", {"M"}, "H", 2, 3},
      {"softmax", "softmax", {"M"}, "N", 2, 3},
      {"embedding", "embedding", {"B", "T"}, "D", 2, 2},
      {"fused_add_rms_norm", "fused_add_rms_norm", {"M"}, "H", 4, 4},
      {"megatron_cross_entropy", "cross_entropy", {"S", "B"}, "V", 1, 2},
      {"megatron_rms_norm", "rms_norm", {"S", "B"}, "H", 2, 3},
  };
  return table;
}

std::int64_t liger_extent(const Table& table, const Json& config, std::string_view name) {
  constexpr std::int64_t most = 1'000'000'000;
  if (table.cell("x_name") == name) return std::min(table.whole("x_value", 1), most);
  const auto found = config.find(std::string(name));
  if (found == config.end() || !found->is_number_unsigned() || found->get<std::uint64_t>() == 0 ||
      found->get<std::uint64_t>() > static_cast<std::uint64_t>(most))
    table.fail(fmt::format("'config' must hold {}, a positive integer", name));
  return found->get<std::int64_t>();
}

/// Nothing for a row that is no time of one direction; no bytes where the columns do not give them.
std::optional<MeasuredOp> liger_row(const Table& table) {
  if (table.cell("metric") != "speed" || table.cell("mode") == "full") return std::nullopt;
  if (table.cell("unit") != "ms") table.fail(fmt::format("'unit' must be ms, not '{}'", shown(table.cell("unit"))));
  const auto known = std::ranges::find(liger_kernels(), table.cell("kernel"), &LigerKernel::name);
  const bool is_known = known != liger_kernels().end();
  const Json config = Json::parse(table.cell("config"), nullptr, false);
  if (!config.is_object()) table.fail("'config' must be a JSON object");
  MeasuredOp op;
  op.kind = is_known ? std::string(known->kind) : table.cell("kernel");
  op.is_backward = is_backward(table, "mode", "forward", "backward");
  op.device = table.cell("gpu");
  op.provider = table.cell("provider");
  const auto type = config.find("dtype");
  op.dtype = dtype_of(table, type != config.end() && type->is_string() ? type->get<std::string>() : "float32");
  op.shape = table.cell("x_name") + "=" + table.cell("x_value");
  op.time = table.milliseconds("median");
  if (!is_known) return op;
  std::optional<std::int64_t> bytes = (op.is_backward ? known->backward : known->forward) * bytes_per_element(op.dtype);
  for (const std::string_view name : known->rows)
    bytes = bytes ? checked_product(*bytes, liger_extent(table, config, name)) : bytes;
  bytes = bytes ? checked_product(*bytes, liger_extent(table, config, known->columns)) : bytes;
  if (!bytes) table.fail("the bytes moved pass 2^63");
  op.moved = Bytes{*bytes};
  return op;
}

// ---- which rows

std::string field_of(const MeasuredOp& op, std::string_view name) {
  if (name == "device") return op.device;
  if (name == "provider") return op.provider;
  return name == "dtype" ? std::string(to_string(op.dtype)) : op.kind;
}

void keep_only(std::vector<MeasuredOp>& ops, const std::string& condition) {
  const std::size_t equals = condition.find('=');
  const std::string name = condition.substr(0, equals);
  if (equals == std::string::npos || (name != "device" && name != "provider" && name != "dtype" && name != "kind"))
    throw InputError("--where must be device=, provider=, dtype= or kind= with a value, not '" + condition + "'");
  std::set<std::string> seen;
  for (const MeasuredOp& op : ops) seen.insert(field_of(op, name));
  const std::string value = condition.substr(equals + 1);
  std::erase_if(ops, [&](const MeasuredOp& op) { return field_of(op, name) != value; });
  if (ops.empty())
    throw InputError(
        fmt::format("--where {}: no row is left; '{}' is one of: {}", condition, name, fmt::join(seen, ", ")));
}

void refuse_mixtures(const std::string& path, const std::vector<MeasuredOp>& ops) {
  for (const char* name : {"device", "provider", "dtype"}) {
    std::set<std::string> seen;
    for (const MeasuredOp& op : ops) seen.insert(field_of(op, name));
    if (seen.size() > 1)
      throw InputError({path}, fmt::format("times of more than one {}; choose with --where {}=NAME, one of: {}", name,
                                           name, fmt::join(seen, ", ")));
  }
}

}  // namespace

MeasuredTable read_measured_ops(const std::string& path, const std::vector<std::string>& where) {
  Table table(path);
  MeasuredTable out;
  const bool own = table.has_all(own_columns), llmc = table.has_all(llmc_columns), liger = table.has_all(liger_columns);
  if (!own && !llmc && !liger)
    table.fail(fmt::format("not a table of op times; expected the columns {}; or llm.c's: {}; or Liger-Kernel's: {}",
                           fmt::join(own_columns, ","), fmt::join(llmc_columns, ","), fmt::join(liger_columns, ",")));
  while (table.row())
    if (const std::optional<MeasuredOp> op = own ? own_row(table) : llmc ? llmc_row(table) : liger_row(table))
      out.ops.push_back(*op);
  for (const std::string& condition : where) keep_only(out.ops, condition);
  std::map<std::string, int> left_out;
  std::erase_if(out.ops, [&](const MeasuredOp& op) {
    const bool without_work = op.flops.count == 0 && op.moved.count == 0;
    if (without_work) ++left_out[op.kind];
    return without_work;
  });
  if (out.ops.empty()) throw InputError({path}, "no rows whose time and work are known");
  refuse_mixtures(path, out.ops);
  for (const auto& [kernel, rows] : left_out) out.left_out.push_back(fmt::format("{} ({})", kernel, rows));
  return out;
}

std::string write_measured_ops(const std::vector<MeasuredOp>& ops) {
  std::string out = "kind,direction,shape,dtype,device,flops,bytes_moved,time_ns,median_ns,held_out\n";
  const auto quoted = [](const std::string& text) {
    if (text.find_first_of(",\"\n") == std::string::npos) return text;
    std::string cell = "\"";
    for (const char c : text) cell += c == '"' ? std::string("\"\"") : std::string(1, c == '\n' ? ' ' : c);
    return cell + '"';
  };
  for (const MeasuredOp& op : ops)
    out += fmt::format("{},{},{},{},{},{},{},{},{},{}\n", quoted(op.kind), op.is_backward ? "backward" : "forward",
                       quoted(op.shape), to_string(op.dtype), quoted(op.device), to_string(op.flops), op.moved.count,
                       op.time.count, op.median ? std::to_string(op.median->count) : "",
                       op.held_out ? (*op.held_out ? "1" : "0") : "");
  return out;
}

}  // namespace tidemark
