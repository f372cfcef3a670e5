// Does a recording of very many tides stay readable?
#include "tidemark/report/replay_table.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace tidemark;

TEST_CASE("replay: forty tides in words, and how many more there are") {
  for (const std::size_t tides : {std::size_t{40}, std::size_t{45}}) {
    CAPTURE(tides);
    ReplayTable table;
    table.tides.assign(tides, Tide{});
    const std::string text = replay_text(table);
    CHECK(text.find("\n  39 ") != std::string::npos);
    CHECK(text.find("\n  40 ") == std::string::npos);
    CHECK((text.find("  and 5 more\n") != std::string::npos) == (tides == 45));
  }
}

TEST_CASE("replay: a file name that is no UTF-8 leaves the JSON valid") {
  ReplayTable table;
  table.recording = "\xff.csv";
  CHECK(replay_json(table).find("\"recording\": \"\uFFFD.csv\"") != std::string::npos);
}
