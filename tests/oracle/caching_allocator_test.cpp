// Does the caching allocator answer every request as PyTorch's does: block, offset and every counter?
#include "tidemark/engine/caching_allocator.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

using namespace tidemark;

namespace {

const std::string folder = "tests/oracle/data/caching_allocator/";

using Row = std::vector<std::string>;

std::vector<Row> read_rows(const std::string& file) {
  std::ifstream in(folder + file);
  REQUIRE_MESSAGE(in.good(), file);
  std::vector<Row> rows;
  for (std::string line; std::getline(in, line);) {
    Row& row = rows.emplace_back();
    std::stringstream fields(line);
    for (std::string field; std::getline(fields, field, ',');) row.push_back(field);
  }
  rows.erase(rows.begin());  // the header
  return rows;
}

CachingSettings settings_of(const std::string& conf, const std::string& device_bytes) {
  CachingSettings settings;
  settings.capacity = Bytes{std::stoll(device_bytes)};
  if (conf == "expandable_segments:True") settings.expandable_segments = true;
  if (conf == "max_split_size_mb:100") settings.max_split_size = Bytes{100 << 20};
  if (conf == "roundup_power2_divisions:4") settings.roundup_power2_divisions.fill(4);
  if (conf == "garbage_collection_threshold:0.6") settings.garbage_collection_threshold = 0.6;
  return settings;
}

/// Serves requests and answers in the words of the recorded rows.
class Replay {
 public:
  explicit Replay(const CachingSettings& settings) : allocator_(settings) {}
  const CachingAllocator& allocator() const { return allocator_; }

  Row answer(const Row& request) {
    const std::string& op = request[0];
    Row row(request.begin(), request.begin() + 4);
    Row place(3);
    const std::uint32_t stream = request[3].empty() ? 0 : static_cast<std::uint32_t>(std::stoul(request[3]));
    if (op == "a" || op == "oom") {
      const auto block = allocator_.allocate(Bytes{std::stoll(request[2])}, stream);
      row[0] = block ? "a" : "oom";
      number_reservations();
      if (block) place = place_of(*block);
      if (block) blocks_[request[1]] = *block;
    }
    if (op == "f") allocator_.free(blocks_.at(request[1]));
    if (op == "r") allocator_.record_stream(blocks_.at(request[1]), stream);
    if (op == "s") allocator_.all_streams_passed();
    if (op == "e") allocator_.empty_cache();
    if (op == "m") allocator_.set_memory_fraction(std::stod(request[1]));
    number_reservations();
    row.insert(row.end(), place.begin(), place.end());
    const CachingCounters& now = allocator_.counters();
    for (const std::int64_t figure :
         {now.allocated_bytes.all.current.count, now.reserved_bytes.all.current.count,
          now.active_bytes.all.current.count, now.inactive_split_bytes.all.current.count,
          static_cast<std::int64_t>(allocator_.reservations().size()), now.retries, now.out_of_memory})
      row.push_back(std::to_string(figure));
    return row;
  }

 private:
  void number_reservations() {
    for (const Reservation& r : allocator_.reservations()) numbers_.try_emplace(r.address, numbers_.size());
  }
  Row place_of(BlockId block) const {
    for (const Reservation& r : allocator_.reservations())
      for (const Reservation::Block& b : r.blocks)
        if (b.id == block)
          return {std::to_string(numbers_.at(r.address)), std::to_string(b.address - r.address),
                  std::to_string(b.size.count)};
    return Row(3);
  }

  CachingAllocator allocator_;
  std::map<std::string, BlockId> blocks_;
  std::map<std::int64_t, std::size_t> numbers_;
};

std::string join(const Row& row) {
  std::string out;
  for (const std::string& field : row) out += (out.empty() ? "" : ",") + field;
  return out;
}

}  // namespace

TEST_CASE("caching allocator: every recorded answer of PyTorch 2.6") {
  const std::vector<Row> runs = read_rows("index.csv");
  CHECK(runs.size() == 55);
  for (const Row& run : runs) {
    const std::string file = run[0] + "." + run[1] + ".csv";
    CAPTURE(file);
    Replay replay(settings_of(run[2], run[3]));
    const std::vector<Row> rows = read_rows(file);
    CHECK(std::to_string(rows.size()) == run[4]);
    int line = 1;
    for (const Row& row : rows) {
      ++line;
      CAPTURE(line);
      const std::string answer = join(replay.answer(row));
      REQUIRE(answer == join(row));
    }
    const CachingCounters& end = replay.allocator().counters();
    const Row totals = {run[0],
                        run[1],
                        run[2],
                        run[3],
                        run[4],
                        std::to_string(end.requested_bytes.all.peak.count),
                        std::to_string(end.allocated_bytes.all.peak.count),
                        std::to_string(end.reserved_bytes.all.peak.count),
                        std::to_string(end.retries),
                        std::to_string(end.out_of_memory),
                        std::to_string(end.out_of_memory),  // requests that failed
                        std::to_string(replay.allocator().reservations().size())};
    CHECK(join(totals) == join(run));
  }
}
