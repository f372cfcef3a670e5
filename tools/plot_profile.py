#!/usr/bin/env python3
"""Draws predicted against measured times of a profile that `tidemark calibrate --out` wrote.

Usage: plot_profile.py PROFILE.yaml PICTURE.png      needs matplotlib
"""
import re
import sys

POINT = re.compile(r"- \{kind: \"(\w+)\", .*flops: (\d+) FLOP,.* measured: (\d+) ns,.* predicted: (\d+) ns,.*\}")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    import matplotlib  # pylint: disable=import-outside-toplevel
    matplotlib.use("Agg")
    from matplotlib import pyplot  # pylint: disable=import-outside-toplevel
    groups = {}
    with open(sys.argv[1], encoding="utf-8") as file:
        for line in file:
            if match := POINT.search(line):
                what = "matrix products" if int(match[2]) else "all others"
                seen = "held out" if "held_out: true" in line else "fitted to"
                groups.setdefault(f"{what}, {seen}", []).append((int(match[3]) / 1e3, int(match[4]) / 1e3))
    if not groups:
        sys.exit(f"{sys.argv[1]} has no points")
    figure, axes = pyplot.subplots(figsize=(5, 4.4), dpi=100)
    every = [value for points in groups.values() for point in points for value in point]
    axes.plot([min(every), max(every)], [min(every), max(every)], color="0.7", linewidth=1)
    for name, points in sorted(groups.items()):
        held = name.endswith("held out")
        axes.scatter(*zip(*points), s=14 if held else 8, marker="o" if held else ".", label=name,
                     color="tab:red" if name.startswith("matrix") else "tab:blue",
                     facecolors="none" if held else None, linewidths=0.9)
    axes.set(xscale="log", yscale="log", xlabel="measured, us", ylabel="predicted, us")
    axes.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(sys.argv[2], metadata={"Software": None})


if __name__ == "__main__":
    main()
