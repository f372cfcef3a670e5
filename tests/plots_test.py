#!/usr/bin/env python3
"""Do tools/plot_*.py draw our CSVs, and does the notebook of docs/plots.md run?

What is not installed (matplotlib, pandas) is not tried. Usage: plots_test.py PROGRAM
"""
import importlib.util
import json
import pathlib
import re
import sys
import tempfile

from harness import ROOT, Tally, run

PLOT, PLOT_SWEEP = ROOT / "tools/plot_timeline.py", ROOT / "tools/plot_sweep.py"
PLOT_FRONTIER = ROOT / "tools/plot_frontier.py"


def plot_cases(folder, tally):
    for name, words in {"events": [], "time": ["--axis", "time", "--budget", "3000000000"], "a step": ["--step", "1"]}.items():
        picture, vector = folder / "a.png", folder / "a.svg"
        code, _, err = run([sys.executable, PLOT, folder / "t.csv", "-o", picture, "-o", vector, *words])
        good = code == 0 and picture.read_bytes().startswith(b"\x89PNG") and b"peak" in vector.read_bytes()
        tally.case(f"plot by {name}", "" if good else f"exit {code}: {err.decode()}")
    (folder / "wrong.csv").write_text("a,b\n1,2\n")
    lines = (folder / "t.csv").read_text("utf-8").splitlines(keepends=True)
    (folder / "hole.csv").write_text("".join(lines[:5] + lines[6:]), "utf-8")
    for name, said in {"wrong.csv": "no column", "hole.csv": "live_bytes", "none.csv": "No such file"}.items():
        code, _, err = run([sys.executable, PLOT, folder / name, "-o", folder / "b.png"])
        good = code == 2 and said in err.decode() and not (folder / "b.png").exists()
        tally.case(f"plot refuses {name}", "" if good else f"exit {code}: {err.decode()}")


def sweep_cases(program, folder, tally):
    code, _, err = run([program, "sweep", ROOT / "scenarios/chain-seed-36.yaml", "--vary", "policy.interval=[1, 6, 50]", "--vary",
                        "policy.schedule=[per_segment, up_front]", "--vary", "model.layers=[36, -1]", "--out", folder / "s.csv"])
    tally.case("a sweep with rows that fail", "" if code == 1 else err.decode())
    picture, vector = folder / "s.png", folder / "s.svg"
    for name, words in {"points": [], "other columns": ["--x", "flops_total", "--y", "events", "--color", "policy.schedule"],
                        "heat map": ["--heat", "policy.interval", "policy.schedule"]}.items():
        code, _, err = run([sys.executable, PLOT_SWEEP, folder / "s.csv", "-o", picture, "-o", vector, *words])
        good = code == 0 and picture.read_bytes().startswith(b"\x89PNG") and b"<svg" in vector.read_bytes()
        again = vector.read_bytes() if good else b""
        run([sys.executable, PLOT_SWEEP, folder / "s.csv", "-o", picture, "-o", vector, *words])
        tally.case(f"a sweep by {name}", f"exit {code}: {err.decode()}" if not good else
                   "" if again == vector.read_bytes() else "the same CSV gives another file")
    for words, said in [(["t.csv"], "no column"), (["none.csv"], "No such file"), (["s.csv", "--x", "size"], "no column size"),
                        (["s.csv", "--y", "peak_op"], "does not hold a number")]:
        code, _, err = run([sys.executable, PLOT_SWEEP, folder / words[0], *words[1:], "-o", folder / "b.png"])
        good = code == 2 and said in err.decode() and not (folder / "b.png").exists()
        tally.case(f"a sweep's plot refuses {' '.join(words)}", "" if good else f"exit {code}: {err.decode()}")


def frontier_cases(program, folder, tally):
    code, _, err = run([program, "plan", ROOT / "scenarios/chain-heterogeneous.yaml", "--frontier", folder / "f.csv"])
    tally.case("a front", err.decode() if code else "")
    drawn = []
    for _ in range(2):
        code, _, err = run([sys.executable, PLOT_FRONTIER, f"{folder / 'f.csv'}=all methods", "-o", folder / "f.svg"])
        drawn.append((folder / "f.svg").read_bytes() if code == 0 else b"")
    good = b"all methods" in drawn[0]
    tally.case("a front's plot", f"exit {code}: {err.decode()}" if not good else
               "" if drawn[0] == drawn[1] else "the same CSV gives another file")
    for name, said in {"t.csv": "not a front", "none.csv": "No such file"}.items():
        code, _, err = run([sys.executable, PLOT_FRONTIER, folder / name, "-o", folder / "b.png"])
        good = code == 2 and said in err.decode() and not (folder / "b.png").exists()
        tally.case(f"a front's plot refuses {name}", "" if good else f"exit {code}: {err.decode()}")


def main():
    program, tally = pathlib.Path(sys.argv[1]).resolve(), Tally()
    with tempfile.TemporaryDirectory() as home:
        folder = pathlib.Path(home)
        code, _, err = run([program, "run", ROOT / "scenarios/gpt2-small-every-3.yaml", "--timeline", folder / "t.csv",
                            "--ops", folder / "ops.csv"])
        tally.case("the CSVs", err.decode() if code else "")
        code, _, err = run([program, "sweep", ROOT / "scenarios/studies/gpt2-intervals.yaml", "--out", folder / "sweep.csv"])
        tally.case("the sweep's CSV", err.decode() if code else "")
        if importlib.util.find_spec("matplotlib"):
            plot_cases(folder, tally)
            sweep_cases(program, folder, tally)
            frontier_cases(program, folder, tally)
        if importlib.util.find_spec("matplotlib") and importlib.util.find_spec("pandas"):
            blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/plots.md").read_text("utf-8"), re.DOTALL)
            peak = json.loads(run([program, "run", ROOT / "scenarios/gpt2-small-every-3.yaml", "--json"])[1])["peak_bytes"]
            script = "import matplotlib\nmatplotlib.use('Agg')\n" + "\n".join(blocks).replace("tide.csv", "t.csv")
            code, out, err = run([sys.executable, "-c", script], cwd=folder)
            good = code == 0 and f"{peak:,} B in backward of".encode() in out
            tally.case("the notebook of docs/plots.md", "" if good else out.decode() + err.decode())
    tally.finish()


if __name__ == "__main__":
    main()
