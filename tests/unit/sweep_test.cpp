#include "tidemark/study/sweep.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <utility>

#include "tidemark/base/errors.hpp"
#include "tidemark/report/csv.hpp"

using namespace tidemark;

namespace {

/// A file of this text, gone with the test.
struct TextFile {
  TextFile(std::string name, const std::string& text) : path(std::move(name)) { std::ofstream(path) << text; }
  ~TextFile() { std::remove(path.c_str()); }
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;
  std::string path;
};

std::string chain_study(const std::string& layer, const std::string& sweep) {
  return "model: {family: chain, layers: 12, layer_activation: " + layer +
         ", boundary: 10MB, forward_time: 1ms}\npolicy: {kind: interval, interval: 1}\nsweep: " + sweep + "\n";
}
const std::string intervals = "{policy.interval: 1..12, steps: [1, 0]}";

std::string csv(const Study& study, const SweepOptions& options = {}) {
  std::string out;
  (void)sweep(study, options, [&](std::string_view text) { out += text; });
  return out;
}

/// One column of every row, the header's first.
std::string column(const std::string& csv, const std::string& name) {
  std::string out;
  std::size_t wanted = 0;
  bool first = true;
  for (std::size_t begin = 0; begin < csv.size();) {
    const std::size_t end = csv.find('\n', begin);
    const std::vector<std::string> fields = csv_fields(csv.substr(begin, end - begin));
    if (begin == 0)
      wanted = static_cast<std::size_t>(std::find(fields.begin(), fields.end(), name) - fields.begin());
    else
      out += (std::exchange(first, false) ? "" : " ") + fields.at(wanted);
    begin = end + 1;
  }
  return out;
}

std::string mistake(const Study& study, const SweepOptions& options) {
  try {
    (void)csv(study, options);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("sweep: the front is what nothing beats, equal points together") {
  // peak falls and time rises with the interval, up to 3; ties are both on the front
  const TextFile file("sweep_test.yaml", chain_study("100MB", "{policy.interval: [12, 4, 4, 1, 2, 3, 13]}"));
  const std::string out = csv(read_study(file.path, {}));
  CHECK(column(out, "peak_bytes") == "1210000000 430000000 430000000 220000000 260000000 340000000 1210000000");
  CHECK(column(out, "pareto") == "0 0 0 1 0 0 0");
  const TextFile costly("sweep_test2.yaml", chain_study("100MB", "{policy.kind: [none, full, none, whole]}"));
  const std::string kinds = csv(read_study(costly.path, {}));
  CHECK(column(kinds, "time_step_ns") == "12000000 24000000 12000000 24000000");
  CHECK(column(kinds, "pareto") == "1 1 1 0");
}

TEST_CASE("sweep: a point that fails is a row with its error") {
  const TextFile file("sweep_test.yaml", chain_study("100MB", "{steps: [1, 0, 2]}"));
  const Study study = read_study(file.path, {});
  std::string out;
  const SweepOutcome outcome = sweep(study, {}, [&](std::string_view text) { out += text; });
  CHECK(outcome.rows == 3);
  CHECK(outcome.failed == 1);
  CHECK(column(out, "error") == " steps=0: error: 'steps' must be a positive integer, not '0' ");
  CHECK(column(out, "method") == "simulated  simulated");
  CHECK(column(out, "pareto") == "1  1");
}

TEST_CASE("sweep: stopped anywhere and resumed, it writes the bytes of one that was not") {
  const TextFile file("sweep_test.yaml", chain_study("100MB", intervals));
  const Study study = read_study(file.path, {});
  const std::string whole = csv(study);
  for (const std::int64_t rows : {1, 2, 3, 7, 23, 24}) {
    CAPTURE(rows);
    const TextFile part("sweep_test_part.csv", csv(study, {.limit = rows}));
    CHECK(csv(study, {.resume = part.path}) == whole);
  }
  std::atomic<bool> stop = true;
  const std::string none = csv(study, {.stop = &stop});
  CHECK(none == whole.substr(0, whole.find('\n') + 1));
  const TextFile header("sweep_test_part.csv", none);
  CHECK(csv(study, {.resume = header.path}) == whole);
  // a line that was cut is done again
  const TextFile cut("sweep_test_cut.csv", whole.substr(0, whole.size() - 9));
  CHECK(csv(study, {.resume = cut.path}) == whole);
}

TEST_CASE("sweep: an interrupted file has no front yet, and its rows are whole") {
  const TextFile file("sweep_test.yaml", chain_study("100MB", "{policy.interval: 1..2000}"));
  const Study study = read_study(file.path, {});
  std::atomic<bool> stop = false;
  std::string out;
  const SweepOutcome outcome =
      sweep(study, {.jobs = 1, .stop = &stop, .progress = [&](auto, auto, auto) { stop = true; }},
            [&](std::string_view text) { out += text; });
  CHECK_FALSE(outcome.whole);
  CHECK(outcome.rows > 0);
  CHECK(outcome.rows < 2000);
  CHECK(out.back() == '\n');
  CHECK(column(out, "pareto").find_first_not_of(' ') == std::string::npos);
}

TEST_CASE("sweep: the CSV of another study is refused") {
  const TextFile file("sweep_test.yaml", chain_study("100MB", intervals));
  const TextFile part("sweep_test_part.csv", csv(read_study(file.path, {}), {.limit = 9}));
  struct Case {
    std::string name, text, message;
  };
  const Case cases[] = {
      {"other axes", chain_study("100MB", "{policy.interval: 1..12}"), "columns"},
      {"other values", chain_study("100MB", "{policy.interval: 1..12, steps: [1, 2]}"), "the row of point 1"},
      {"fewer points", chain_study("100MB", "{policy.interval: 1..2, steps: [1, 0]}"), "no more rows"},
      {"other points", chain_study("100MB", "{policy.interval: 1..12, steps: [1, 0], where: policy.interval > 1}"),
       "the row of point 2"},
      {"another scenario", chain_study("99MB", intervals), "peak_bytes 220000000, expected 219000000"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const TextFile other("sweep_test_other.yaml", c.text);
    const std::string message = mistake(read_study(other.path, {}), {.resume = part.path});
    CAPTURE(message);
    CHECK(message.starts_with("sweep_test_part.csv:"));
    CHECK(message.find(c.message) != std::string::npos);
  }
  const Study study = read_study(file.path, {});
  CHECK(mistake(study, {.resume = "no_such.csv"}).find("cannot be read") != std::string::npos);
}

TEST_CASE("sweep: more than 1e9 points are refused with their number") {
  const TextFile file("sweep_test.yaml", chain_study("100MB", "{policy.interval: 1..100000, steps: 1..100000}"));
  const Study study = read_study(file.path, {});
  CHECK(mistake(study, {}).find("has 10000000000 points") != std::string::npos);
  CHECK(mistake(study, {.limit = 2}).empty());
}

TEST_CASE("sweep: conditions that leave no point are refused") {
  const TextFile file(
      "sweep_test.yaml",
      chain_study("100MB", "{policy.interval: 1..8, where: [policy.interval > 6, policy.interval < 3]}"));
  const Study study = read_study(file.path, {});
  CHECK(mistake(study, {}).find("no point satisfies all conditions of 'where'") != std::string::npos);
}

namespace {

const std::string decoder =
    "model: {family: transformer, model_type: gpt2, layers: 12, hidden: 64, heads: 4, vocab: 100, max_positions: 128, "
    "attention: eager}\nbatch: {size: 2, sequence: 64}\ndevice: a100-80gb\n";

std::size_t count(const std::string& text, const std::string& word) {
  std::size_t found = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("sweep: rows composed from shared stretches are the simulated ones, for any number of threads") {
  const TextFile file("sweep_test.yaml", decoder +
                                             "policy: {kind: selective}\nsweep:\n  policy.interval: [1, 2, 5, 12, 13]\n"
                                             "  policy.recompute: {subsets: [softmax, bmm, zzz], at_most: 2}\n"
                                             "  batch.size: [1, 2]\n");
  const Study study = read_study(file.path, {});
  const std::string composed = csv(study, {.jobs = 1});
  CHECK(count(composed, ",composed,") == 30);
  CHECK(count(composed, "matches no op") == 30);  // what fails is simulated, so that it says why
  CHECK(csv(study, {.jobs = 3}) == composed);
  std::string simulated = csv(study, {.compose = false});
  CHECK(count(simulated, ",simulated,") == 30);
  for (std::size_t at; (at = simulated.find(",simulated,")) != std::string::npos;)
    simulated.replace(at, std::string(",simulated,").size(), ",composed,");
  CHECK(simulated == composed);
  const SweepOutcome outcome = sweep(study, {.verify = 1000}, [](std::string_view) {});
  CHECK(outcome.verified == 30);
  CHECK(sweep(study, {.verify = 7}, [](std::string_view) {}).verified == 7);
}

TEST_CASE("sweep: what an allocator decides is simulated in full, and marked so") {
  const std::string axis = "policy: {kind: interval, interval: 1}\nsweep: {policy.interval: 1..12}\n";
  const TextFile file("sweep_test.yaml", decoder + "allocator: cuda_caching\n" + axis);
  const std::string out = csv(read_study(file.path, {}));
  CHECK(count(out, ",simulated,") == 12);
  CHECK(column(out, "reserved_peak_bytes").front() != ' ');
  // few policies of each setting do not pay for its pieces
  const TextFile few(
      "sweep_test2.yaml",
      decoder + "policy: {kind: interval, interval: 1}\nsweep: {policy.interval: 1..3, batch.size: 1..3}\n");
  CHECK(count(csv(read_study(few.path, {})), ",simulated,") == 9);
}

TEST_CASE("sweep: a difference between composed and simulated names the point's column") {
  const TextFile file("sweep_test.yaml", chain_study("100MB", "{policy.interval: [1, 2]}"));
  const Study study = read_study(file.path, {});
  const std::string one = simulated_row(study, 0).head, two = simulated_row(study, 1).head;
  CHECK(difference(study, one, one).empty());
  CHECK(difference(study, one, two) == "index 0, expected 1");
  std::string other = one;
  other.replace(other.find("220000000"), 9, "220000001");
  CHECK(difference(study, one, other) == "peak_bytes 220000000, expected 220000001");
  other = one;
  other.replace(other.rfind("simulated"), 9, "composed");
  CHECK(difference(study, one, other).empty());
}

TEST_CASE("sweep: a composed row that is not the simulated one ends the sweep") {
  const TextFile file("sweep_test.yaml", chain_study("100MB", "{policy.interval: [1, 2]}"));
  const Study study = read_study(file.path, {});
  SweepRow row = simulated_row(study, 1);
  CHECK_NOTHROW(check_composed(study, 1, row));
  row.head.replace(row.head.find("260000000"), 9, "260000001");
  CHECK_THROWS_WITH_AS(check_composed(study, 1, row),
                       "the composed row of point 1 is not the simulated one: peak_bytes 260000001, expected 260000000",
                       InternalError);
}

TEST_CASE("sweep rows: fields in quotes") {
  CHECK(csv_fields("a,\"b,\"\"c\"\"\",,d") == std::vector<std::string>{"a", "b,\"c\"", "", "d"});
  CHECK(csv_fields(csv_field("x\"y,z")) == std::vector<std::string>{"x\"y,z"});
}
