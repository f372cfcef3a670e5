// Does a replay say of recorded GPU runs what their files say? Skipped where the files are not.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "support/csv.hpp"
#include "support/lifetimes.hpp"
#include "tidemark/engine/arena.hpp"
#include "tidemark/study/replay.hpp"

using namespace tidemark;

namespace {

const std::string folder = "../shared/data/files/";

bool is_here(const std::string& file) {
  if (std::filesystem::exists(folder + file)) return true;
  MESSAGE("skipped: ", file, " is not here");
  return false;
}

}  // namespace

TEST_CASE("recorded runs: a GPT step's reserved bytes are 1.06 times the allocated ones, expandable 1.03") {
  int runs = 0;
  for (const test::Row& row : test::table("tests/oracle/data/caching_allocator/index.csv")) {
    if (row.at("trace") != "gpt_none") continue;
    ++runs;
    // The counters are those of the replay, which caching_allocator_test.cpp holds to the recorded ones.
    const double ratio = std::stod(row.at("peak_reserved")) / std::stod(row.at("peak_allocated"));
    CHECK(std::lround(100 * ratio) == (row.at("config") == "default" ? 106 : 103));
  }
  CHECK(runs == 2);
}

TEST_CASE("recorded runs: two processes of DDP on V100, 26,770 events in five steps") {
  if (!is_here("hta_v100_ddp_memory_events.csv.gz")) return;
  // Reading checks the running total of every row.
  const ReplayTable table = replay({.recording = folder + "hta_v100_ddp_memory_events.csv.gz"});
  CHECK(table.events == 26'770);
  CHECK(table.recorded_reserved == Bytes{12'782'141'440});
  REQUIRE(table.tides.size() == 5);
  for (const Tide& tide : table.tides) {
    CHECK(tide.peak == Bytes{6'629'508'096});
    CHECK(tide.floor == Bytes{4'096'614'400});
  }
}

// The level when backward's last autograd_detail byte goes is 332,061,928; the optimizer then frees the gradients, and
// the lowest level of a step is 224,192,744.
TEST_CASE("recorded runs: ResNet-50, five steps") {
  if (!is_here("hta_resnet50_memory_timeline.raw.json.gz")) return;
  const ReplayTable table = replay({.recording = folder + "hta_resnet50_memory_timeline.raw.json.gz"});
  REQUIRE(table.tides.size() == 5);
  for (const Tide& tide : table.tides) {
    CHECK(tide.peak == Bytes{3'082'832'104});
    CHECK(tide.backward_end == Bytes{332'061'928});
  }
  CHECK(table.floor == Bytes{224'192'744});
  REQUIRE(table.category_peaks);
  CHECK((*table.category_peaks)[4] == Bytes{2'746'497'024});  // activation
}

TEST_CASE("recorded runs: minimalloc's twelve units, exactly") {
  if (!is_here("minimalloc_input.12.csv")) return;
  const std::vector<Lifetime> lives = recorded_lifetimes(folder + "minimalloc_input.12.csv");
  const Arena arena = make_arena(lives);
  CHECK(test::is_arrangement(lives, arena));
  CHECK(arena.height == Bytes{12});
}

TEST_CASE("recorded runs: minimalloc's instances A to F within 1 % of their capacity") {
#ifdef NDEBUG
  const std::vector<std::string> names = {"A", "B", "C", "D", "E", "F"};
#else
  const std::vector<std::string> names = {"C", "F"};  // the others search for a second, ten without optimization
#endif
  for (const std::string& name : names) {
    const std::string file = "minimalloc_" + name + ".1048576.csv";
    if (!is_here(file)) return;
    CAPTURE(name);
    const std::vector<Lifetime> lives = recorded_lifetimes(folder + file);
    const auto arena = fit_arena(lives, Bytes{1'048'576 + 10'485});
    REQUIRE(arena);
    CHECK(test::is_arrangement(lives, *arena));
  }
}
