#!/usr/bin/env python3
"""Does tools/validate hold its bounds on every published table, and does it notice when one is broken?

Usage: validate_test.py PROGRAM [--quick]

--quick is for builds without optimization, in which the other tables take minutes.
"""
import importlib.util
import pathlib
import re
import shutil
import sys
import tempfile

from harness import ROOT, Tally, run

VALIDATE = ROOT / "tools/validate"
QUICK = [word for name in ("megatron-ci", "megatron-births", "llmc-cpu", "llmc-gpu", "megatron-stages",
                           "megatron-stage-births", "simumax", "lomo", "fms", "liger", "bert-large", "orders") for word in ("--table", name)]


def main():
    program, tally = pathlib.Path(sys.argv[1]).resolve(), Tally()
    chosen = QUICK if sys.argv[2:] == ["--quick"] else []
    with tempfile.TemporaryDirectory() as home:
        folder = pathlib.Path(home)
        picture = ["--picture", folder / "a.svg"] if importlib.util.find_spec("matplotlib") else []
        code, out, err = run([sys.executable, VALIDATE, program, *chosen, "--csv", folder / "a.csv", *picture])
        tally.case("every bound holds", "" if code == 0 else out.decode() + err.decode())
        tables = re.findall(r"^([\w-]+): ", out.decode(), re.MULTILINE)
        tally.case("the picture", "" if not picture or b"</svg>" in (folder / "a.svg").read_bytes() else "no picture")
        docs = (ROOT / "docs/validation.md").read_text("utf-8")
        for line in re.findall(r"^(?:[\w-]+: |  \d+ rows).*$", out.decode(), re.MULTILINE):
            tally.case(f"docs/validation.md says: {line.strip()[:60]}", "" if line in docs else f"not there: {line}")

        shutil.copytree(ROOT / "tests/data", folder / "data")
        path = folder / "data/llmc_cpu.csv"
        path.write_text(path.read_text("utf-8").replace("531968000", "531968004"), "utf-8")
        code, out, _ = run([sys.executable, VALIDATE, program, "--data", folder / "data", "--table", "llmc-cpu"])
        good = code == 1 and b"BROKEN: 12 layers of 256, 4 x 128: total: -4 B" in out
        tally.case("a figure that is 4 bytes off", "" if good else f"exit {code}: {out.decode()}")

        path.unlink()
        mistakes = {"a table that is missing": ["--data", folder / "data"], "an unknown table": ["--table", "nobody"]}
        for name, words in mistakes.items():
            code, out, err = run([sys.executable, VALIDATE, program, "--table", "llmc-cpu", *words])
            good = code == 2 and b"error: " in err and out == b""
            tally.case(name, "" if good else f"exit {code}: {err.decode()}")
        tally.case("there are tables", "" if len(tables) >= len(QUICK) / 2 else f"{len(tables)} were printed")
    tally.finish()


if __name__ == "__main__":
    main()
