// What no scenario can bring about: names of any bytes, and steps without events. tests/exports_test.py reads the rest.

#include <doctest/doctest.h>

#include "support/tide.hpp"
#include "tidemark/engine/simulate.hpp"
#include "tidemark/report/snapshot.hpp"
#include "tidemark/report/timeline_json.hpp"
#include "tidemark/report/trace.hpp"

using namespace tidemark;
using tidemark::test::HandStep;

namespace {

using Writer = void (*)(const Step&, const Timeline&, const TextSink&);

std::string written(Writer write, const Step& step) {
  std::string out;
  write(step, simulate(step, {}), [&](std::string_view text) { out += text; });
  return out;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("exports: the raw timeline, an event a line") {
  CHECK(written(write_timeline_json, test::small_tide().step)
            .starts_with("[\n"
                         "[-1, 1, 100, 0],\n"
                         "[-1, 1, 10, 2],\n"
                         "[0, 2, 30, 4],\n"
                         "[0, 2, 20, 4],\n"
                         "[10, 4, -30, 4],\n"));
}

TEST_CASE("exports: a step without events is a file without events") {
  CHECK(written(write_timeline_json, Step{}) == "[\n]\n");
  CHECK(written(write_trace, Step{}).ends_with("\"args\":{\"name\":\"comm\"}}\n]}\n"));
  CHECK(has(written(write_snapshot, Step{}), "device_traces"));
}

TEST_CASE("exports: bytes of a name that are not UTF-8 become U+FFFD, control bytes stay what they are") {
  HandStep made;
  made.op("a\x01\xff", 1).op_layer("l\n\xc3").alloc("t\x02\xfe\"", 7).run().free("t\x02\xfe\"");
  const std::string trace = written(write_trace, made.step);
  CHECK(has(trace, R"("name":"a\u0001)"
                   "\xef\xbf\xbd\""));
  CHECK(has(trace, R"("layer":"l\n)"
                   "\xef\xbf\xbd\""));
  const std::string snapshot = written(write_snapshot, made.step);
  CHECK(has(snapshot, "t\x02\xef\xbf\xbd\" (activation)"));
  CHECK(has(snapshot, std::string("X\x05\0\0\0", 5) + "l\n\xef\xbf\xbd"));
  for (const char byte : {'\xff', '\xfe', '\xc3'}) CHECK_FALSE(has(snapshot, std::string{byte, '"'}));
}

TEST_CASE("exports: a lagging stream's ops have their own track, and times ascend") {
  HandStep made;
  made.op("A", 10).alloc("a", 5).run().record(0);
  made.op("out", 30, Stream::copy_out).phase(Phase::offload).wait(0).copy({"a"}).free("a");
  made.op("B", 10).alloc("b", 3).run();
  const std::string trace = written(write_trace, made.step);
  const auto b = trace.find(R"("tid":0,"ts":0.010,"dur":0.010,"name":"B")");
  const auto out = trace.find(R"("tid":2,"ts":0.010,"dur":0.030,"name":"out")");
  CAPTURE(trace);
  CHECK(b != std::string::npos);
  CHECK(out != std::string::npos);
  CHECK(out < trace.find(R"("tid":0,"ts":0.040,"name":"live_bytes","args":{"bytes":3}})"));
}
