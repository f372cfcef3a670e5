#!/usr/bin/env python3
"""The same input, the same bytes out: twice, on one processor and on two, with clean and with dirty memory.

Usage: determinism_test.py PROGRAM    runs every scenario and study three ways and compares all that it writes
"""
import pathlib
import sys
import tempfile

from harness import ROOT, Tally, difference, run, scenarios

# oneTBB takes as many threads as the process may use processors; MALLOC_PERTURB_ fills fresh memory with a pattern.
WAYS = (
    ("one thread", {"OMP_NUM_THREADS": "1"}, 1),
    ("two threads", {"OMP_NUM_THREADS": "2"}, 2),
    ("two threads, dirty memory", {"OMP_NUM_THREADS": "2", "MALLOC_PERTURB_": "165"}, 2),
)


def sweep_outputs(program, study, environment, cpus):
    """Everything that a sweep writes, by name."""
    code, out, err = run([program, "sweep", study.relative_to(ROOT), "--limit", "300"], environment=environment, cpus=cpus)
    return {"exit": str(code).encode(), "stdout": out, "stderr": err}


def run_outputs(program, scenario, environment, cpus):
    """Everything that a run writes, by name."""
    with tempfile.TemporaryDirectory() as scratch:
        timeline, ops = pathlib.Path(scratch) / "timeline.csv", pathlib.Path(scratch) / "ops.csv"
        command = [program, "run", scenario.relative_to(ROOT), "--json", "--timeline", timeline, "--ops", ops]
        code, out, err = run(command, environment=environment, cpus=cpus)
        files = {path.name: path.read_bytes() for path in (timeline, ops) if path.exists()}
    return {"exit": str(code).encode(), "stdout": out, "stderr": err, **files}


def problem_of(outputs, program, file):
    first, *others = [(name, outputs(program, file, environment, cpus)) for name, environment, cpus in WAYS]
    if first[1]["exit"] not in (b"0", b"1"):
        return f"exit {first[1]['exit'].decode()}: {first[1]['stderr'].decode(errors='backslashreplace')}"
    if outputs is run_outputs and not {"timeline.csv", "ops.csv"} <= first[1].keys():
        return "wrote no timeline or no ops"
    problems = []
    for name, files in others:
        for what in sorted(first[1].keys() | files.keys()):
            expected, actual = first[1].get(what, b""), files.get(what, b"")
            problems.append(difference(expected, actual, f"{what}, {first[0]} and {name}"))
    return "\n".join(filter(None, problems))


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    tally = Tally()
    for scenario in scenarios():
        tally.case(f"determinism {scenario.stem}", problem_of(run_outputs, program, scenario))
    for study in sorted((ROOT / "scenarios/studies").glob("*.yaml")):
        tally.case(f"determinism {study.stem}", problem_of(sweep_outputs, program, study))
    tally.finish()


if __name__ == "__main__":
    main()
