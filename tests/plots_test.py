#!/usr/bin/env python3
"""Does tools/plot_timeline.py draw our CSV, and does the notebook of docs/plots.md run?

What is not installed (matplotlib, pandas) is not tried. Usage: plots_test.py PROGRAM
"""
import importlib.util
import pathlib
import re
import sys
import tempfile

from harness import ROOT, Tally, run

PLOT = ROOT / "tools/plot_timeline.py"


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


def main():
    program, tally = pathlib.Path(sys.argv[1]).resolve(), Tally()
    with tempfile.TemporaryDirectory() as home:
        folder = pathlib.Path(home)
        code, _, err = run([program, "run", ROOT / "scenarios/gpt2-small-every-3.yaml", "--timeline", folder / "t.csv",
                            "--ops", folder / "ops.csv"])
        tally.case("the CSVs", err.decode() if code else "")
        if importlib.util.find_spec("matplotlib"):
            plot_cases(folder, tally)
        if importlib.util.find_spec("matplotlib") and importlib.util.find_spec("pandas"):
            blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/plots.md").read_text("utf-8"), re.DOTALL)
            script = "import matplotlib\nmatplotlib.use('Agg')\n" + "\n".join(blocks).replace("tide.csv", "t.csv")
            code, out, err = run([sys.executable, "-c", script], cwd=folder)
            good = code == 0 and b"7,021,471,752 B in backward of" in out
            tally.case("the notebook of docs/plots.md", "" if good else out.decode() + err.decode())
    tally.finish()


if __name__ == "__main__":
    main()
