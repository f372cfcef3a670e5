// Do tables and graphs become the layers they list, in order, or an error that names the row?
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tidemark/base/errors.hpp"
#include "tidemark/input/scenario.hpp"

using namespace tidemark;

namespace {

class TempFile {
 public:
  TempFile(const std::string& name, const std::string& text) : path_(directory() / name) {
    std::filesystem::create_directories(directory());
    std::ofstream(path_) << text;
  }
  ~TempFile() { std::filesystem::remove_all(directory()); }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  std::string path() const { return path_.string(); }

 private:
  static std::filesystem::path directory() { return std::filesystem::temp_directory_path() / "tidemark_table_test"; }
  std::filesystem::path path_;
};

LayerGraph graph_of(const std::string& family, const std::string& path, const std::string& more = "") {
  return std::get<LayerGraph>(
      parse_scenario("model: {family: " + family + ", file: " + path + more + "}", "s.yaml").model);
}

std::string error_of(const std::string& family, const std::string& name, const std::string& text,
                     const std::string& more = "") {
  const TempFile file(name, text);
  try {
    graph_of(family, file.path(), more);
  } catch (const InputError& error) {
    const std::string line = error.what();
    return line.starts_with(file.path()) ? line.substr(file.path().size() - name.size()) : line;
  }
  return "";
}

std::vector<std::string> names(const LayerGraph& graph) {
  std::vector<std::string> out;
  for (const LayerCost& layer : graph.layers) out.push_back(layer.name);
  return out;
}

const std::string header = "layer_activation_bytes,boundary_bytes,forward_flops,forward_time_ns\n";

std::string node(const std::string& id, const std::string& bytes = "8.000", const std::string& ms = "1.500") {
  return id + " -- Conv2d(3, 64, padding=(1, 1)) -- forward_compute_time=" + ms +
         ", backward_compute_time=0.001, activation_size=" + bytes + ", parameter_size=4.000\n";
}

}  // namespace

TEST_CASE("layer table: a chain, a row a layer") {
  const TempFile file("l.csv",
                      "type , layer_activation_bytes,boundary_bytes,forward_flops,backward_flops,"
                      "attention_fraction,forward_time_ns,gradient_bytes,\"name\"\r\n"
                      "attention, 100, 10, 200, 500, 0.15, 7, 3, \"first, of two\"\r\n"
                      "ffn,110,11,0,0,1,8,4,b\n");
  const LayerGraph graph = graph_of("chain", file.path(), ", loss_time: 5 ns");
  REQUIRE(graph.layers.size() == 2);
  CHECK(names(graph) == std::vector<std::string>{"first, of two", "b"});
  CHECK(graph.input == Bytes{10});
  CHECK(graph.layers[0].output == Bytes{11});
  CHECK(graph.layers[1].output == Bytes{0});
  CHECK(graph.layers[0].layer_activation == Bytes{100});
  CHECK(graph.layers[0].type == "attention");
  CHECK(graph.layers[0].attention_flops == Flops{30});
  CHECK(graph.layers[0].backward_flops == Flops{500});
  CHECK(graph.layers[0].gradient == Bytes{3});
  CHECK(graph.layers[1].forward_time == Nanos{8});
  CHECK(graph.layers[1].inputs == std::vector<std::int32_t>{0});
  CHECK(graph.loss_time == Nanos{5});
}

TEST_CASE("layer table: what the file does not give may be given inline") {
  const TempFile file("l.csv", header + "1,2,3,4\n5,6,7,8\n");
  const LayerGraph graph = graph_of("chain", file.path(), ", type: [ffn, other], gradient: [1 B, 2 B, 3 B]");
  CHECK(graph.layers[0].type == "ffn");
  CHECK(graph.layers[0].backward_flops == Flops{6});
  CHECK(graph.layers[1].gradient == Bytes{2});
  CHECK(graph.output_gradient == Bytes{3});
  CHECK(error_of("chain", "l.csv", header + "1,2,3,4\n", ", forward_flops: 1 FLOP")
            .ends_with("l.csv; expected one of the two"));
  CHECK(error_of("chain", "l.csv", header + "1,2,3,4\n", ", layers: 2").ends_with("l.csv has 1 rows"));
}

TEST_CASE("layer table: what is refused") {
  struct Case {
    std::string name;
    std::string text;
    std::string error;
  };
  const std::string row = "1,2,3,4\n";
  const Case cases[] = {
      {"a missing column", "layer_activation_bytes\n1\n",
       "l.csv:1: error: missing column 'boundary_bytes'; expected layer_activation_bytes, boundary_bytes"},
      {"an unknown column", "layer_activation_bytes,boundary_byte\n1,2\n",
       "l.csv:1: error: unknown column 'boundary_byte'; did you mean 'boundary_bytes'?"},
      {"a column of graphs", "id,layer_activation_bytes,boundary_bytes\na,1,2\n",
       "l.csv:1: error: column 'id' has no meaning here; expected some of layer_activation_bytes, boundary_bytes, "
       "name, "
       "type, gradient_bytes, forward_flops, backward_flops, attention_fraction, forward_time_ns, backward_time_ns, "
       "forward_workspace_bytes, backward_workspace_bytes, parameter_bytes, weight_time_ns, weight_activation_bytes"},
      {"a column twice", "boundary_bytes,layer_activation_bytes,boundary_bytes\n1,2,3\n",
       "l.csv:1: error: repeated column 'boundary_bytes'"},
      {"no rows", header, "l.csv:1: error: no rows below the header"},
      {"an empty file", "", "l.csv: error: is empty; expected a layer table (CSV)"},
      {"only a line end", "\n", "l.csv:1: error: blank line; expected a header"},
      {"a blank line", header + row + "\n" + row, "l.csv:3: error: blank line; expected 4 columns"},
      {"a blank line at the end", header + row + "  \n", "l.csv:3: error: blank line; expected 4 columns"},
      {"too few columns", header + row + "1,2,3\n", "l.csv:3: error: too few columns; expected 4 columns"},
      {"too many columns", header + "1,2,3,4,5\n", "l.csv:2: error: too many columns; expected 4 columns"},
      {"half a byte", header + "1.5,2,3,4\n",
       "l.csv:2: error: column 'layer_activation_bytes' must be a whole number, not '1.5'"},
      {"a word", header + row + "1,2,five,4\n",
       "l.csv:3: error: column 'forward_flops' must be a whole number, not 'five'"},
      {"a number and more", header + "1,2,12abc,4\n",
       "l.csv:2: error: column 'forward_flops' must be a whole number, not '12abc'"},
      {"a leading zero", header + "1,010,3,4\n",
       "l.csv:2: error: column 'boundary_bytes' must be a whole number, not '010'"},
      {"a negative number", header + "1,-2,3,4\n",
       "l.csv:2: error: column 'boundary_bytes' must be a whole number, not '-2'"},
      {"nan", header + "1,2,3,nan\n", "l.csv:2: error: column 'forward_time_ns' must be a whole number, not 'nan'"},
      {"nothing", header + "1,,3,4\n", "l.csv:2: error: column 'boundary_bytes' must be a whole number, not ''"},
      {"a unit", header + "1 MB,2,3,4\n",
       "l.csv:2: error: column 'layer_activation_bytes' must be a whole number, not '1 MB'"},
      {"past 2^63", header + "1,9223372036854775808,3,4\n",
       "l.csv:2: error: column 'boundary_bytes' must be a whole number, not '9223372036854775808'"},
      {"a number with a hidden end", header + std::string("1,2,3\0abc,4\n", 12),
       "l.csv:2:6: error: byte 0x00 does not belong here; expected UTF-8 text"},
      {"an open quote", header + "\"1,2,3,4\n", "l.csv:2: error: a quoted text is not closed"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(error_of("chain", "l.csv", c.text) == c.error);
  }
  CHECK(error_of("chain", "l.csv", "type," + header + "attn,1,2,3,4\n") ==
        "l.csv:2: error: column 'type' must be one of attention, ffn, other, not 'attn'");
  CHECK(error_of("chain", "l.csv", "attention_fraction," + header + "0.15,1,2,7,4\n") ==
        "l.csv:2: error: 'attention_fraction' of 7 FLOP is not a whole number of FLOPs");
}

TEST_CASE("layer table: a graph keeps the file's order as far as it can") {
  //      a -> c -> d        rows stand c, a, b, d; c waits for a
  //        \-> b ->/
  const TempFile file("g.csv",
                      "id,inputs,layer_activation_bytes,output_bytes,forward_flops\n"
                      "c,a,3,30,0\na,,1,10,4\nb,a,2,20,0\nd,c; b,4,40,0\n");
  const LayerGraph graph = graph_of("graph", file.path(), ", input: 5 B, output_gradient: 40 B");
  CHECK(names(graph) == std::vector<std::string>{"a", "c", "b", "d"});
  CHECK(graph.layers[3].inputs == std::vector<std::int32_t>{1, 2});
  CHECK(graph.layers[0].backward_flops == Flops{8});
  CHECK(graph.input == Bytes{5});
  CHECK(graph.output_gradient == Bytes{40});
  CHECK_FALSE(graph.is_chain);
  const TempFile line("g.csv", "id,inputs,layer_activation_bytes,output_bytes\na,,1,1\nb,a,1,1\n");
  CHECK(graph_of("graph", line.path()).is_chain);
}

TEST_CASE("layer table: graphs that are refused") {
  const std::string columns = "id,inputs,layer_activation_bytes,output_bytes\n";
  struct Case {
    std::string name;
    std::string rows;
    std::string error;
  };
  const Case cases[] = {
      {"an unknown layer", "a,,1,1\nb,x,1,1\n", "g.csv:3: error: column 'inputs' names the unknown layer 'x'"},
      {"a layer twice", "a,,1,1\nb,a;a,1,1\n", "g.csv:3: error: column 'inputs' names the layer 'a' twice"},
      {"an id twice", "a,,1,1\nb,a,1,1\na,b,1,1\n", "g.csv:4: error: repeated id 'a'; first given on line 2"},
      {"no id", ",,1,1\n", "g.csv:2: error: column 'id' must be a name, not ''"},
      {"itself", "a,,1,1\nb,b,1,1\n", "g.csv:3: error: the layers read each other in a cycle: b -> b"},
      {"a cycle", "a,,1,1\nb,a d,1,1\nc,b,1,1\nd,c,1,1\ne,d,1,1\n",
       "g.csv:3: error: the layers read each other in a cycle: b -> c -> d -> b"},
      {"behind a cycle", "e,d,1,1\nb,d,1,1\nd,b,1,1\n",
       "g.csv:2: error: the layers read each other in a cycle: d -> b -> d"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(error_of("graph", "g.csv", columns + c.rows) == c.error);
  }
}

TEST_CASE("pipedream: times in ms, sizes in bytes, tuples added up, in the order the nodes ran") {
  const TempFile file("graph.txt", node("node10", "[6291456.0; 131072.0; 131072.0]", "251.874") + node("node9") +
                                       node("node11", "0.0", "0") +
                                       "\tnode9 -- node10\n\tnode10 -- node11\n\tnode9 -- node11");
  const LayerGraph graph = graph_of("graph", file.path());
  CHECK(names(graph) == std::vector<std::string>{"node9", "node10", "node11"});
  CHECK(graph.layers[1].output == Bytes{6553600});
  CHECK(graph.layers[1].layer_activation == Bytes{6553600});
  CHECK(graph.layers[1].forward_time == Nanos{251'874'000});
  CHECK(graph.layers[0].backward_time == Nanos{1'000});
  CHECK(graph.layers[0].parameters == Bytes{4});
  CHECK(graph.layers[2].inputs == std::vector<std::int32_t>{1, 0});
  CHECK(graph.layers[2].gradient == Bytes{6553608});
  CHECK(graph.layers[0].gradient == Bytes{0});
}

TEST_CASE("pipedream: what is refused") {
  struct Case {
    std::string name;
    std::string text;
    std::string error;
  };
  const Case cases[] = {
      {"not a graph", "hello\n", "graph.txt:1: error: expected 'node1 -- operator -- forward_compute_time=..., ...'"},
      {"only edges", "\tnode1 -- node2\n", "graph.txt: error: no nodes; expected a PipeDream graph (graph.txt)"},
      {"a node without number", node("nodeX"), "graph.txt:1: error: expected a node such as 'node4', not 'nodeX'"},
      {"a missing setting",
       "node1 -- Add -- forward_compute_time=1.0, backward_compute_time=1.0, activation_size=1.0\n",
       "graph.txt:1: error: missing 'parameter_size='"},
      {"half a byte", node("node1", "1.5"), "graph.txt:1: error: 'activation_size' must be a whole number, not '1.5'"},
      {"a word", node("node1", "many"), "graph.txt:1: error: 'activation_size' must be a whole number, not 'many'"},
      {"an open tuple", node("node1", "[1.0; 2.0"), "graph.txt:1: error: 'activation_size' has no closing ']'"},
      {"a time that is none", node("node1", "1.0", "nan"),
       "graph.txt:1: error: 'forward_compute_time' must be a decimal number, not 'nan'"},
      {"a node twice", node("node1") + node("node1"), "graph.txt:2: error: repeated node 'node1'"},
      {"an edge to nothing", node("node1") + "\tnode1 -- node2\n",
       "graph.txt:2: error: edge to the unknown node 'node2'"},
      {"an edge twice", node("node1") + node("node2") + "\tnode1 -- node2\n\tnode1 -- node2\n",
       "graph.txt:4: error: repeated edge"},
      {"half an edge", node("node1") + "\tnode1\n", "graph.txt:2: error: expected an edge 'node1 -- node2'"},
      {"a blank line", node("node1") + "\n" + node("node2"),
       "graph.txt:2: error: blank line; expected a node or an edge"},
      {"a cycle", node("node1") + node("node2") + "\tnode1 -- node2\n\tnode2 -- node1\n",
       "graph.txt:1: error: the layers read each other in a cycle: node1 -> node2 -> node1"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(error_of("graph", "graph.txt", c.text) == c.error);
  }
}
