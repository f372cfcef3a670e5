#!/usr/bin/env python3
"""Draws Pareto fronts of `tidemark plan --frontier`: peak against time, or against FLOPs where a model has no times.

Usage: plot_frontier.py FRONT.csv[=LABEL] ... -o front.png [-o front.svg] [--title TEXT]

Needs matplotlib (python3-matplotlib).
"""
import argparse
import csv

from plotting import fail, plt, save

COLUMNS = {"peak_bytes", "time_ns", "total_flops", "method"}
COLORS = ["#4477aa", "#ee6677", "#3f9e6b", "#e8a33d", "#aa77bb"]


def read(path):
    try:
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        fail(f"{path}: {error.strerror}")
    if not rows or not COLUMNS <= rows[0].keys():
        fail(f"{path}: not a front of `tidemark plan --frontier`; expected the columns {', '.join(sorted(COLUMNS))}")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("fronts", nargs="+")
    parser.add_argument("-o", "--out", action="append", required=True)
    parser.add_argument("--title", default="")
    arguments = parser.parse_args()
    figure, axes = plt.subplots(figsize=(7, 4.2), constrained_layout=True)
    for color, front in zip(COLORS * len(arguments.fronts), arguments.fronts):
        path, _, label = front.partition("=")
        rows = read(path)
        timed = any(int(row["time_ns"]) > 0 for row in rows)
        cost = [int(row["time_ns"]) / 1e6 if timed else int(row["total_flops"]) / 1e12 for row in rows]
        unit = "time, ms" if timed else "FLOPs, 10^12"
        if timed and min(cost) >= 10_000:
            cost, unit = [ms / 1e3 for ms in cost], "time, s"
        axes.step([int(row["peak_bytes"]) / 2**30 for row in rows], cost, where="post", color=color, marker="o",
                  markersize=4, label=label or path)
        axes.set_ylabel(unit)
    axes.set_xlabel("peak, GiB")
    axes.set_title(arguments.title)
    axes.grid(alpha=0.3)
    axes.legend()
    save(figure, arguments.out, dpi=120)


if __name__ == "__main__":
    main()
