#!/usr/bin/env python3
"""Can tools/check_layers.py fail? Plants one fault at a time in a small tree, and looks for the line that names it."""
import pathlib
import sys
import tempfile

from harness import ROOT, Tally, run

GOOD = {
    "sim/CMakeLists.txt": "add_library(tidemark STATIC\n  base/units.cpp\n  step/graph.cpp\n  step/lower.cpp\n"
                          "  report/csv.cpp\n)\n",
    "include/tidemark/base/units.hpp": "#include <string>\n",
    "include/tidemark/step/step.hpp": '#include "tidemark/base/units.hpp"\n',  # a header alone
    "include/tidemark/step/graph.hpp": '#include "tidemark/step/step.hpp"\n',
    "include/tidemark/step/lower.hpp": '#include "tidemark/step/step.hpp"\n',
    "sim/base/units.cpp": '#include "tidemark/base/units.hpp"\n#include <fmt/core.h>\n',
    "sim/step/graph.cpp": '#include "tidemark/step/graph.hpp"\n#include <boost/graph/adjacency_list.hpp>\n',
    "sim/step/lower.cpp": '#include "tidemark/step/lower.hpp"\n#include "tidemark/step/graph.hpp"\n',
    "sim/report/csv.cpp": '#include "tidemark/step/step.hpp"\n#include <nlohmann/json.hpp>\n// std::cout\n',
    "tools/main.cpp": "#include <CLI/CLI.hpp>\n#include <iostream>\n",
}

# name, files to write over the good tree, what must be said ("" is nothing)
CASES = (
    ("nothing is wrong", {}, ""),
    ("a level below", {"include/tidemark/base/units.hpp": '#include "tidemark/step/step.hpp"\n'},
     "include/tidemark/base/units.hpp:1: base includes step/step, which stands below it"),
    ("later in the list", {"sim/step/graph.cpp": '\n#include "tidemark/step/lower.hpp"\n'},
     "sim/step/graph.cpp:2: step/graph includes step/lower, which comes later"),
    ("later in the list, through a header alone",
     {"include/tidemark/step/step.hpp": '#include "tidemark/step/lower.hpp"\n',
      "include/tidemark/step/lower.hpp": "\n"},
     "include/tidemark/step/graph.hpp:1: step/graph includes step/step, which comes later"),
    ("two headers in a circle",
     {"include/tidemark/step/step.hpp": '#include "tidemark/step/emit.hpp"\n',
      "include/tidemark/step/emit.hpp": '#include "tidemark/step/step.hpp"\n'}, "includes in a circle"),
    ("a source that is not built", {"sim/step/extra.cpp": "\n"},
     "sim/step/extra.cpp:1: is not in the list of sim/CMakeLists.txt"),
    ("a list out of level order",
     {"sim/CMakeLists.txt": "add_library(tidemark STATIC\n  step/graph.cpp\n  step/lower.cpp\n  report/csv.cpp\n"
                            "  base/units.cpp\n)\n"},
     "sim/CMakeLists.txt:5: base/units.cpp stands after level report"),
    ("a folder that is no level", {"include/tidemark/extra/x.hpp": "\n"},
     "include/tidemark/extra/x.hpp:1: is in no level"),
    ("a private header in a public one",
     {"include/tidemark/step/graph.hpp": '#include "step/private.hpp"\n', "sim/step/private.hpp": "\n"},
     "a public header includes the private sim/step/private.hpp"),
    ("an unknown header", {"sim/step/graph.cpp": '#include "tidemark/step/grahp.hpp"\n'},
     "'tidemark/step/grahp.hpp' is no file of the library"),
    ("angle brackets", {"sim/step/graph.cpp": "#include <tidemark/step/graph.hpp>\n"},
     'sim/step/graph.cpp:1: write #include "tidemark/step/graph.hpp"'),
    ("Boost outside step", {"sim/report/csv.cpp": "#include <boost/graph/graphviz.hpp>\n"}, "Boost.Graph stays in"),
    ("Boost in a public header", {"include/tidemark/step/graph.hpp": "#include <boost/graph/graph_traits.hpp>\n"},
     "include/tidemark/step/graph.hpp:1: Boost.Graph stays in"),
    ("Boost.Multiprecision outside formula",
     {"sim/step/graph.cpp": "#include <boost/multiprecision/cpp_int.hpp>\n"}, "Boost.Multiprecision stays in"),
    ("JSON outside report and input", {"sim/step/graph.cpp": "#include <nlohmann/json.hpp>\n"},
     "nlohmann-json stays in"),
    ("fmt in a header", {"include/tidemark/base/units.hpp": "#include <fmt/core.h>\n"}, "fmt stays in"),
    ("the simulator in the native step", {"tools/native/mlp.cpp": '#include "tidemark/base/units.hpp"\n'},
     "tools/native/mlp.cpp:1: the library, which the native step must not know, stays in"),
    ("YAML outside input", {"sim/report/csv.cpp": "#include <yaml-cpp/yaml.h>\n"}, "yaml-cpp stays in"),
    ("TBB outside study", {"sim/report/csv.cpp": "#include <tbb/parallel_for.h>\n"}, "oneTBB stays in"),
    ("CLI11 beside main", {"tools/cmd_run.cpp": "#include <CLI/CLI.hpp>\n"}, "tools/cmd_run.cpp:1: CLI11 stays in"),
    ("doctest in the library", {"sim/report/csv.cpp": "#include <doctest/doctest.h>\n"}, "doctest stays in"),
    ("the library prints", {"sim/report/csv.cpp": "void f() {\n  std::cout << 1;\n}\n"},
     "sim/report/csv.cpp:2: the library does not print"),
    ("the library exits", {"sim/report/csv.cpp": "void f() { std::exit(2); }\n"}, "the library does not print"),
    ("the library reads the environment", {"sim/report/csv.cpp": 'auto x = std::getenv("HOME");\n'},
     "the library does not print"),
)


def problem_of(files, expected):
    with tempfile.TemporaryDirectory() as root:
        for path, text in {**GOOD, **files}.items():
            file = pathlib.Path(root) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        code, out, err = run([sys.executable, ROOT / "tools/check_layers.py", root])
    said = (out + err).decode()
    if code != (1 if expected else 0):
        return f"exit {code}; it said:\n{said}"
    return "" if expected in said else f"expected: {expected}\nit said:\n{said}"


def main():
    tally = Tally()
    for name, files, expected in CASES:
        tally.case(name, problem_of(files, expected))
    tally.finish()


if __name__ == "__main__":
    main()
