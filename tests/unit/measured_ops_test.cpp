// Which op times are read from a table, in each of its three forms, and what is refused?
#include "tidemark/input/measured_ops.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "tidemark/base/errors.hpp"

using namespace tidemark;

namespace {

/// A file for as long as a test needs it.
class Written {
 public:
  explicit Written(const std::string& text) { std::ofstream(path) << text; }
  ~Written() { std::remove(path.c_str()); }
  Written(const Written&) = delete;
  Written& operator=(const Written&) = delete;
  const std::string path = "/tmp/tidemark-ops-" + std::to_string(::getpid()) + ".csv";
};

MeasuredTable read(const std::string& text, const std::vector<std::string>& where = {}) {
  const Written file(text);
  return read_measured_ops(file.path, where);
}

std::string refusal(const std::string& text, const std::vector<std::string>& where = {}) {
  const Written file(text);
  try {
    read_measured_ops(file.path, where);
  } catch (const InputError& error) {
    const std::string said = error.what();
    return said.starts_with(file.path) ? "F" + said.substr(file.path.size()) : said;
  }
  return "nothing was refused";
}

const std::string own = "kind,direction,shape,flops,bytes_moved,time_ns\n";
const std::string llmc =
    "layers,hidden,heads,seq,batch,vocab,padded_vocab,phase,op,shape,count_per_step,flops,min_ms,median_ms,gflops_at_"
    "min\n";
const std::string liger = "source,kernel,provider,mode,metric,unit,x_name,x_value,median,config,gpu\n";

}  // namespace

TEST_CASE("op times: our own columns, and what is written is read again") {
  const std::string text =
      "kind,direction,shape,dtype,device,flops,bytes_moved,time_ns,median_ns,held_out\n"
      "matmul,forward,m=2 n=3,bfloat16,\"a \"\"b\"\", c\",12,100,5000,6000,0\n"
      "relu,backward,,bfloat16,\"a \"\"b\"\", c\",0,64,70,,1\n"
      "relu,backward,x,bfloat16,\"a \"\"b\"\", c\",0,65,71,,\n";
  const MeasuredTable table = read(text);
  REQUIRE(table.ops.size() == 3);
  const MeasuredOp& product = table.ops[0];
  CHECK(product.kind == "matmul");
  CHECK_FALSE(product.is_backward);
  CHECK(product.shape == "m=2 n=3");
  CHECK(product.dtype == DType::bfloat16);
  CHECK(product.device == "a \"b\", c");
  CHECK(product.flops == Flops{12});
  CHECK(product.moved == Bytes{100});
  CHECK(product.time == Nanos{5000});
  CHECK(product.median == Nanos{6000});
  CHECK(product.held_out == false);
  CHECK(table.ops[1].is_backward);
  CHECK(table.ops[1].held_out == true);
  CHECK_FALSE(table.ops[1].median.has_value());
  CHECK_FALSE(table.ops[2].held_out.has_value());
  CHECK(write_measured_ops(table.ops) == text);
}

TEST_CASE("op times: llm.c's columns") {
  const MeasuredTable table = read(llmc +
                                   "2,8,2,4,3,90,96,fwd,matmul_forward,M=12 N=16 K=8,2,3072,0.5,0.75,1\n"
                                   "2,8,2,4,3,90,96,bwd,matmul_backward,M=12 N=16 K=8,2,6144,0.0000019,0.75,1\n"
                                   "2,8,2,4,3,90,96,fwd,attention_forward,B=3 T=4 NH=2 C=8 causal,2,999,1,1,1\n"
                                   "2,8,2,4,3,90,96,bwd,gelu_backward,,2,,1,1,\n"
                                   "2,8,2,4,3,90,96,fwd,softmax_forward,,1,,1,1,\n"
                                   "2,8,2,4,3,90,96,fwd,something_new,,1,,1,1,\n");
  REQUIRE(table.ops.size() == 5);
  CHECK(table.ops[0].kind == "linear");
  CHECK(table.ops[0].flops == Flops{3072});
  CHECK(table.ops[0].moved == Bytes{4 * (12 * 16 + 12 * 8 + 16 * 8)});
  CHECK(table.ops[0].time == Nanos{500'000});
  CHECK(table.ops[1].is_backward);
  CHECK(table.ops[1].moved == Bytes{4 * (12 * 16 + 2 * 12 * 8 + 2 * 16 * 8)});
  CHECK(table.ops[1].time == Nanos{2});
  CHECK(table.ops[2].moved == Bytes{4 * (4 * 12 * 8 + 2 * 3 * 2 * 4 * 4)});
  CHECK(table.ops[3].kind == "gelu");
  CHECK(table.ops[3].moved == Bytes{4 * 3 * 12 * 4 * 8});
  CHECK(table.ops[4].moved == Bytes{4 * 2 * 12 * 96});
  CHECK(table.left_out == std::vector<std::string>{"something_new (1)"});
}

TEST_CASE("op times: Liger-Kernel's columns, one device at a time") {
  const std::string text =
      liger +
      "s,rms_norm,liger,forward,speed,ms,H,1024,0.25,\"{\"\"M\"\": 2048, \"\"dtype\"\": \"\"torch.bfloat16\"\"}\",A\n"
      "s,rms_norm,liger,backward,speed,ms,H,1024,0.5,\"{\"\"M\"\": 2048, \"\"dtype\"\": \"\"torch.bfloat16\"\"}\",A\n"
      "s,rms_norm,liger,full,speed,ms,H,1024,9,\"{\"\"M\"\": 2048}\",A\n"
      "s,rms_norm,liger,full,memory,MB,H,1024,9,\"{\"\"M\"\": 2048}\",A\n"
      "s,rms_norm,torch,forward,speed,ms,H,1024,0.75,\"{\"\"M\"\": 2048}\",B\n"
      "s,fused_moe,liger,forward,speed,ms,T,1024,0.75,\"{\"\"T\"\": null}\",A\n";
  CHECK(refusal(text).find("times of more than one device; choose with --where device=NAME, one of: A, B") !=
        std::string::npos);
  const MeasuredTable table = read(text, {"device=A"});
  REQUIRE(table.ops.size() == 2);
  CHECK(table.ops[0].dtype == DType::bfloat16);
  CHECK(table.ops[0].moved == Bytes{2LL * 2 * 2048 * 1024});
  CHECK(table.ops[1].moved == Bytes{3LL * 2 * 2048 * 1024});
  CHECK(table.ops[1].is_backward);
  CHECK(table.left_out == std::vector<std::string>{"fused_moe (1)"});
  CHECK(refusal(text, {"device=C"}) == "error: --where device=C: no row is left; 'device' is one of: A, B");
  CHECK(refusal(text, {"gpu=A"}) ==
        "error: --where must be device=, provider=, dtype= or kind= with a value, not 'gpu=A'");
}

TEST_CASE("op times: bad tables are refused with the line") {
  struct Case {
    std::string name, text, message;
  };
  const Case cases[] = {
      {"empty", "", "F: error: "},
      {"no rows", own, "F: error: no rows whose time and work are known"},
      {"another table", "a,b\n1,2\n", "F:1: error: not a table of op times; expected the columns kind,direction,shape"},
      {"a column is missing", "kind,direction,shape,flops,bytes_moved\nadd,forward,,0,1\n", "F:1: error: not a table"},
      {"a column twice", "kind,kind\n", "F:1: error: column 'kind' stands twice"},
      {"cut in mid-line", own + "add,forward,,0,12", "F:2: error: the file ends in the middle of a line"},
      {"an open quote", own + "\"add,forward,,0,12,1\n", "F:2: error: a quoted text is not closed"},
      {"a short row", own + "add,forward,,0,12\n", "F:2: error: 5 cells; expected 6, as in the header"},
      {"a blank line", own + "add,forward,,0,12,5\n\nadd,forward,,0,12,5\n", "F:3: error: a blank line"},
      {"a time of nothing", own + "add,forward,,0,12,0\n",
       "F:2: error: 'time_ns' must be a whole number from 1, not '0'"},
      {"a time that is no number", own + "add,forward,,0,12,1e5\n",
       "'time_ns' must be a whole number from 1, not '1e5'"},
      {"negative bytes", own + "add,forward,,0,-12,5\n", "'bytes_moved' must be a whole number from 0, not '-12'"},
      {"no work", own + "add,forward,,0,0,5\n", "F:2: error: neither 'flops' nor 'bytes_moved' is above 0"},
      {"no kind", own + ",forward,,0,1,5\n", "F:2: error: 'kind' must be a name"},
      {"a direction", own + "add,fwd,,0,1,5\n", "'direction' must be forward or backward, not 'fwd'"},
      {"llm.c: a shape", llmc + "2,8,2,4,3,9,9,fwd,matmul_forward,M=12 N=16,2,3072,0.5,0.75,1\n",
       "'shape' must hold K=N"},
      {"llm.c: a time", llmc + "2,8,2,4,3,9,9,fwd,gelu_forward,,2,,nan,0.75,1\n", "'min_ms' must be a number above 0"},
      {"llm.c: no batch", llmc + "2,8,2,4,0,9,9,fwd,gelu_forward,,2,,1,0.75,1\n",
       "'batch' must be a whole number from 1"},
      {"Liger: config", liger + "s,softmax,t,forward,speed,ms,N,4,1,[],A\n", "'config' must be a JSON object"},
      {"Liger: extent", liger + "s,softmax,t,forward,speed,ms,N,4,1,{},A\n",
       "'config' must hold M, a positive integer"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const std::string said = refusal(c.text);
    CAPTURE(said);
    CHECK(said.find(c.message) != std::string::npos);
  }
}
