#!/usr/bin/env python3
"""Do the scripts around `tidemark calibrate` work: PyTorch's op times, and the picture of a profile?

What is not installed (PyTorch, matplotlib) is not tried. Usage: calibration_test.py PROGRAM
"""
import csv
import pathlib
import sys
import tempfile

from harness import ROOT, Tally, run

OP_TIMES = ROOT / "tools/capture/op_times.py"
PLOT = ROOT / "tools/plot_profile.py"


def python_with(module):
    """One that has it: this one, or the system's; None when neither."""
    return next((python for python in (sys.executable, "/usr/bin/python3")
                 if run([python, "-c", f"import importlib.util as u; assert u.find_spec('{module}')"])[0] == 0), None)


def measured_by_torch(python, program, folder):
    """'' or what is wrong with a table measured by PyTorch, and with the profile fitted to it."""
    table, profile = folder / "torch.csv", folder / "torch.yaml"
    code, _, err = run([python, OP_TIMES, "--rounds", "1", "--out", table])
    if code != 0:
        return err.decode()
    with open(table, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    kinds = {(row["kind"], row["direction"]) for row in rows}
    missing = {(kind, direction) for kind in ("matmul", "linear", "bmm", "gelu", "layer_norm", "softmax", "cross_entropy")
               for direction in ("forward", "backward")} - kinds
    if missing or any(int(row["time_ns"]) < 1 for row in rows):
        return f"missing {missing}, or a time of nothing"
    code, out, err = run([program, "calibrate", "--from", table, "--out", profile])
    return "" if code == 0 and b"backward over forward" in out else err.decode()


def picture(python, program, folder):
    table, profile, png = folder / "ops.csv", folder / "ops.yaml", folder / "ops.png"
    table.write_text("kind,direction,shape,flops,bytes_moved,time_ns,held_out\n" + "".join(
        f"linear,forward,\"a, {n}\",{n}000000,{n}00000,{n}00000,{n % 2}\nadd,forward,b,0,{n}00000,{n}0000,{n % 2}\n"
        for n in range(1, 7)), encoding="utf-8")
    code, _, err = run([program, "calibrate", "--from", table, "--out", profile])
    if code != 0:
        return err.decode()
    code, _, err = run([python, PLOT, profile, png])
    if code != 0 or not png.read_bytes().startswith(b"\x89PNG"):
        return f"exit {code}: {err.decode()}"
    profile.write_text("name: x\n", encoding="utf-8")
    code, _, err = run([python, PLOT, profile, folder / "none.png"])
    return "" if code == 1 and b"has no points" in err and not (folder / "none.png").exists() else err.decode()


def main():
    program, tally = pathlib.Path(sys.argv[1]).resolve(), Tally()
    with tempfile.TemporaryDirectory() as home:
        folder = pathlib.Path(home)
        if python := python_with("torch"):
            tally.case("op times by PyTorch", measured_by_torch(python, program, folder))
        if python := python_with("matplotlib"):
            tally.case("picture of a profile", picture(python, program, folder))
    tally.case("without PyTorch, or with a mistake, op_times.py writes nothing",
               "" if run([sys.executable, OP_TIMES, "--rounds", "0", "--out", "/nowhere/x"])[0] == 2 else "no exit 2")
    tally.finish()


if __name__ == "__main__":
    main()
