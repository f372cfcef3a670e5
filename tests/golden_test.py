#!/usr/bin/env python3
"""Does every scenario still give the bytes that were reviewed?

tests/golden/NAME/ holds what scenarios/NAME.yaml must give: summary.txt (stdout of `run`), summary.json (`--json`) and
timeline.csv (`--timeline`). A timeline over 200 kB is kept as timeline.digest: its sha256, its length, and both ends.

Usage: golden_test.py PROGRAM            compares; exit 1 when anything differs
       golden_test.py PROGRAM --bless NAME...   writes tests/golden/NAME/ (all scenarios when no name is given)
"""
import hashlib
import pathlib
import shutil
import sys
import tempfile

from harness import ROOT, Tally, difference, run, scenarios

GOLDEN = ROOT / "tests/golden"
LARGE = 200_000  # bytes
ENDS = 20        # lines of a large file that are kept at either end


def digest(content):
    """A short text that stands for a large CSV file."""
    lines = content.decode().splitlines()
    return "\n".join([f"sha256 {hashlib.sha256(content).hexdigest()}", f"lines {len(lines)}",
                      *lines[:ENDS], "...", *lines[-ENDS:], ""]).encode()


def results(program, scenario):
    """The files that a scenario gives, by name; raises RuntimeError when the program fails."""
    path = scenario.relative_to(ROOT)
    with tempfile.TemporaryDirectory() as scratch:
        timeline = pathlib.Path(scratch) / "timeline.csv"
        summary = run([program, "run", path])
        as_json = run([program, "run", path, "--json", "--timeline", timeline])
        for code, _, err in (summary, as_json):
            if code not in (0, 1):  # 1 is an answer too: it does not fit
                raise RuntimeError(f"exit {code}: {err.decode(errors='backslashreplace')}")
        if summary[0] != as_json[0]:
            raise RuntimeError(f"exit {summary[0]}, but {as_json[0]} with --json --timeline")
        if not timeline.exists():
            raise RuntimeError(f"exit {as_json[0]} without a timeline: {as_json[2].decode(errors='backslashreplace')}")
        events = timeline.read_bytes()
    files = {"summary.txt": summary[1], "summary.json": as_json[1]}
    files.update({"timeline.csv": events} if len(events) <= LARGE else {"timeline.digest": digest(events)})
    if summary[0] != 0:
        files["exit"] = f"{summary[0]}\n".encode()
    return files


def kept(name):
    """The files that were blessed, by name."""
    return {path.name: path.read_bytes() for path in sorted((GOLDEN / name).glob("*"))}


def problem_of(program, scenario):
    expected = kept(scenario.stem)
    if not expected:
        return f"no golden results; look at them, then: tools/bless {scenario.stem}"
    try:
        actual = results(program, scenario)
    except RuntimeError as error:
        return str(error)
    if missing := sorted(expected.keys() - actual.keys()):
        return f"gives no {', '.join(missing)} any more"
    return "\n".join(filter(None, (difference(expected.get(name, b""), actual[name], f"golden/{scenario.stem}/{name}")
                                   for name in actual)))


def bless(program, names):
    known = {scenario.stem: scenario for scenario in scenarios()}
    for name in names or known:
        if name not in known:
            sys.exit(f"bless: no scenarios/{name}.yaml")
        files = results(program, known[name])
        shutil.rmtree(GOLDEN / name, ignore_errors=True)
        (GOLDEN / name).mkdir(parents=True)
        for file, content in files.items():
            (GOLDEN / name / file).write_bytes(content)
        print(f"blessed {name}: {', '.join(files)}")


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    if sys.argv[2:3] == ["--bless"]:
        bless(program, sys.argv[3:])
        return
    tally = Tally()
    for scenario in scenarios():
        tally.case(f"golden {scenario.stem}", problem_of(program, scenario))
    names = {scenario.stem for scenario in scenarios()}
    for folder in sorted(GOLDEN.glob("*/")):
        if folder.name not in names:
            tally.case(f"golden {folder.name}", f"tests/golden/{folder.name} has no scenarios/{folder.name}.yaml")
    tally.finish()


if __name__ == "__main__":
    main()
