#!/usr/bin/env python3
"""Can somebody else use it? Installs a build into an empty folder, runs the program from there, and builds and runs the
project in tests/install/ against it.

Usage: install_test.py BUILD_FOLDER
"""
import pathlib
import sys
import tempfile

from harness import ROOT, Tally, run


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        prefix, consumer = pathlib.Path(folder) / "prefix", pathlib.Path(folder) / "build"
        for name, command, said in (
                ("install", ["cmake", "--install", build, "--prefix", prefix], "tidemark-config.cmake"),
                ("the installed program", [prefix / "bin/tidemark", "--version"], "0.1.0"),
                ("completions", ["grep", "-r", "-l", "formula", prefix / "share"], "tidemark.fish"),
                ("find_package(tidemark)", ["cmake", "-S", ROOT / "tests/install", "-B", consumer, "-G", "Ninja",
                                            f"-DCMAKE_PREFIX_PATH={prefix}"], "Generating done"),
                ("build against it", ["cmake", "--build", consumer], ""),
                ("run what was built", [consumer / "consumer", "scenarios/chain-seed-36.yaml"], "660000000")):
            try:
                code, out, err = run(command)
                answer = (out + err).decode()
            except OSError as error:
                code, answer = 127, str(error)
            tally.case(name, "" if code == 0 and said in answer else f"exit {code}, without '{said}':\n{answer}")
    tally.finish()


if __name__ == "__main__":
    main()
