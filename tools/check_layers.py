#!/usr/bin/env python3
"""Does every file include only what stands above it, and does every library stay in its room?

The order is that of the list in sim/CMakeLists.txt: levels one after another, and modules within a level. A module is
what shares a path below sim/ and include/tidemark/: step/kernel is step/kernel.cpp and step/kernel.hpp. A module that
has no line in the list (a header alone) stands as high as what it includes allows.

Usage: check_layers.py [ROOT]. Prints one line a fault, "file:line: what"; exit 1 when there is any.
"""
import pathlib
import re
import sys

LEVELS = ("base", "formula", "program", "plan", "step", "engine", "report", "input", "study")

# Which files may include a library: a pattern of the include, and one of the files.
ROOMS = (
    ("Boost.Graph", r"boost/(?!multiprecision/)", r"sim/step/"),
    ("Boost.Multiprecision", r"boost/multiprecision/", r"sim/formula/.*\.cpp"),
    ("fmt", r"fmt/", r"(sim|tools)/.*\.cpp"),
    ("nlohmann-json", r"nlohmann/", r"sim/(report|input)/.*\.cpp"),
    ("zlib", r"zlib\.h", r"sim/(report|input)/.*\.cpp"),
    ("yaml-cpp", r"yaml-cpp/", r"sim/input/"),
    ("fast-cpp-csv-parser", r"libfccp/", r"sim/input/.*\.cpp"),
    ("simdjson", r"simdjson", r"sim/input/.*\.cpp"),
    ("toml++", r"toml\+\+/", r"sim/input/.*\.cpp"),
    ("oneTBB", r"(oneapi/)?tbb/", r"sim/study/"),
    ("CBC", r"coin/|Cbc", r"sim/study/"),
    ("CLI11", r"CLI/", r"tools/main\.cpp"),
    ("OpenBLAS", r"cblas", r"tools/native/kernels\.cpp"),
    ("the library, which the native step must not know,", r"tidemark/", r"(?!tools/native/)"),
    ("doctest", r"doctest/", r"tests/"),
    ("rapidcheck", r"rapidcheck", r"tests/"),
    ("Google Benchmark", r"benchmark/", r"bench/"),
)

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
# The library is silent: results are values, and only tools/ prints, exits or looks at its surroundings.
LOUD = re.compile(r"\bstd::(cout|cerr|clog)\b|\b(std::)?(printf|puts|exit|abort|getenv)\s*\(|\bfmt::print\s*\(")


def module_of(path):
    """'step/kernel' of sim/step/kernel.cpp and include/tidemark/step/kernel.hpp; None outside the library."""
    for top in ("sim/", "include/tidemark/"):
        if path.startswith(top) and path.endswith((".cpp", ".hpp")):
            return path[len(top):].rsplit(".", 1)[0]
    return None


def level_of(module):
    level = module.split("/")[0]
    return LEVELS.index(level) if level in LEVELS else None


class Tree:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.faults = []
        self.files = {}  # path: [(line, quoted, what is included)]
        for top in ("include", "sim", "tools", "tests", "bench"):
            for path in sorted((self.root / top).rglob("*")):
                if path.suffix in (".cpp", ".hpp"):
                    self.files[path.relative_to(self.root).as_posix()] = None
        for path in self.files:
            self.files[path] = self.read(path)
        self.listed = self.read_list()
        self.ranks = {}

    def fault(self, path, line, what):
        self.faults.append(f"{path}:{line}: {what}")

    def read(self, path):
        includes = []
        for number, text in enumerate((self.root / path).read_text(encoding="utf-8").splitlines(), 1):
            if match := INCLUDE.match(text):
                includes.append((number, match[1] == '"', match[2]))
            elif path.startswith("sim/") and LOUD.search(text.split("//")[0]):
                self.fault(path, number, "the library does not print, exit or read the environment")
        return includes

    def read_list(self):
        """The place of each module in sim/CMakeLists.txt; also checks that the list is whole and in level order."""
        name = "sim/CMakeLists.txt"
        listed, last = {}, 0
        for number, text in enumerate((self.root / name).read_text(encoding="utf-8").splitlines(), 1):
            match = re.match(r"\s+(\w+(?:/\w+)+)\.cpp\s*\)?\s*$", text)
            if not match:
                continue
            module = match[1]
            level = level_of(module)
            if level is None:
                self.fault(name, number, f"{module}.cpp is in no level ({', '.join(LEVELS)})")
                continue
            if level < last:
                self.fault(name, number, f"{module}.cpp stands after level {LEVELS[last]}")
            if module in listed:
                self.fault(name, number, f"{module}.cpp stands twice")
            last = max(level, last)
            listed[module] = len(listed)
        if not listed:
            self.fault(name, 1, "no module is listed")
        for path in self.files:
            if path.startswith("sim/") and path.endswith(".cpp") and module_of(path) not in listed:
                self.fault(path, 1, f"is not in the list of {name}")
        return listed

    def resolve(self, path, target):
        """The file of the project that a quoted include means, or None."""
        nearby = pathlib.PurePosixPath(path).parent / target
        for candidate in (nearby.as_posix(), f"include/{target}", f"sim/{target}", f"tests/{target}"):
            if candidate in self.files:
                return candidate
        return None

    def own_level(self, path):
        """(line, module) of each include from the same level."""
        mine = module_of(path)
        for line, quoted, target in self.files[path]:
            other = module_of(self.resolve(path, target) or "") if quoted else None
            if other and other != mine and level_of(other) == level_of(mine):
                yield line, other

    def rank(self, module, above=()):
        """Place in the list; of a header alone, that of the latest module of its level that it includes, or -1."""
        if module in self.listed:
            return self.listed[module]
        if module not in self.ranks:
            self.ranks[module] = -1
            for path in (f"include/tidemark/{module}.hpp", f"sim/{module}.hpp"):
                for line, other in self.own_level(path) if path in self.files else ():
                    if other in (*above, module):
                        self.fault(path, line, f"includes in a circle: {' -> '.join((*above, module, other))}")
                    else:
                        self.ranks[module] = max(self.ranks[module], self.rank(other, (*above, module)))
        return self.ranks[module]

    def check_level(self, path):
        module = module_of(path)
        level = level_of(module)
        if level is None:
            self.fault(path, 1, f"is in no level ({', '.join(LEVELS)})")
            return
        for line, quoted, target in self.files[path]:
            if not quoted:
                if target.startswith("tidemark/"):
                    self.fault(path, line, f'write #include "{target}"')
                continue
            found = self.resolve(path, target)
            other = module_of(found or "")
            if other is None:
                self.fault(path, line, f"'{target}' is no file of the library")
            elif path.startswith("include/") and found.startswith("sim/"):
                self.fault(path, line, f"a public header includes the private {found}")
            elif level_of(other) is not None and level_of(other) > level:
                self.fault(path, line, f"{LEVELS[level]} includes {other}, which stands below it")
            elif level_of(other) == level and self.rank(other) > self.rank(module):
                self.fault(path, line, f"{module} includes {other}, which comes later in sim/CMakeLists.txt")

    def check_rooms(self, path):
        for line, _, target in self.files[path]:
            for library, include, room in ROOMS:
                if re.match(include, target) and not re.match(room, path):
                    self.fault(path, line, f"{library} stays in {room}")

    def check(self):
        for path in self.files:
            if path.startswith(("sim/", "include/")):
                self.check_level(path)
            self.check_rooms(path)
        return sorted(set(self.faults))


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    faults = Tree(root).check()
    print("\n".join(faults) if faults else "layers: in order")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
