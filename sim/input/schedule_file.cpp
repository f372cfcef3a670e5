#include "tidemark/input/schedule_file.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "tidemark/input/document.hpp"
#include "tidemark/input/quantities.hpp"

namespace tidemark {
namespace {

constexpr std::int64_t max_schedule_bytes = 64 << 20;
constexpr std::int64_t max_number = 1'000'000;

class ScheduleReader {
 public:
  explicit ScheduleReader(std::string name) : name_(std::move(name)) {}

  PipelineSchedule read(std::string_view text) {
    check_text(text, name_);
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      ++line_;
      row(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    place_chunks();
    try {
      check_schedule(out_);
    } catch (const InputError& error) {
      throw InputError({name_}, error.message());
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(std::size_t column, const std::string& message) const {
    throw InputError({name_, line_, static_cast<int>(column)}, message);
  }

  void row(std::string_view text) {
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (text.empty()) fail(1, "an empty line; expected the passes of one rank, such as 0F0,0B0");
    out_.ranks.emplace_back();
    std::size_t column = 1;
    for (bool more = true; more;) {
      const std::size_t end = std::min(text.find(','), text.size());
      std::string_view cell = text.substr(0, end);
      while (cell.starts_with(' ')) cell.remove_prefix(1);
      while (cell.ends_with(' ')) cell.remove_suffix(1);
      if (!cell.empty()) pass(cell, column);
      more = end < text.size();
      if (more) text.remove_prefix(end + 1);
      column += end + 1;
    }
  }

  void pass(std::string_view cell, std::size_t column) {
    constexpr std::string_view letters = "FBIW";
    const std::size_t at = cell.find_first_not_of("0123456789");
    const std::size_t kind = at == std::string_view::npos ? letters.size() : letters.find(cell[at]);
    const auto chunk = parse_whole(cell.substr(0, std::min(at, cell.size())));
    const auto micro_batch = kind < letters.size() ? parse_whole(cell.substr(at + 1)) : std::nullopt;
    if (!chunk || !micro_batch || *chunk > max_number || *micro_batch > max_number)
      fail(column, fmt::format("{} is no pass; expected a chunk, one of F, B, I, W, and a micro-batch, such as 0F0",
                               shown(cell)));
    const auto rank = static_cast<std::int32_t>(out_.ranks.size() - 1);
    const auto c = static_cast<std::int32_t>(*chunk);
    const auto [known, is_new] = rank_of_.emplace(c, rank);
    if (!is_new && known->second != rank)
      fail(column, fmt::format("chunk {} of pass {} belongs to rank {}, which has it in an earlier row", c, shown(cell),
                               known->second));
    out_.ranks.back().push_back({static_cast<PassKind>(kind), c, static_cast<std::int32_t>(*micro_batch)});
    out_.micro_batches = std::max(out_.micro_batches, static_cast<int>(*micro_batch) + 1);
  }

  void place_chunks() {
    for (const auto& [chunk, rank] : rank_of_) {
      if (chunk != static_cast<std::int32_t>(out_.rank_of_chunk.size()))
        throw InputError({name_},
                         fmt::format("the schedule has chunk {} but no chunk {}", chunk, out_.rank_of_chunk.size()));
      out_.rank_of_chunk.push_back(rank);
    }
    if (out_.rank_of_chunk.empty()) throw InputError({name_}, "the schedule has no pass; expected one row a rank");
  }

  std::string name_;
  int line_ = 0;
  std::map<std::int32_t, std::int32_t> rank_of_;
  PipelineSchedule out_;
};

}  // namespace

PipelineSchedule parse_schedule(const std::string& text, const std::string& name) {
  return ScheduleReader(name).read(text);
}

PipelineSchedule read_schedule(const std::string& path) {
  return parse_schedule(read_text(path, max_schedule_bytes, "a schedule (CSV)"), path);
}

}  // namespace tidemark
