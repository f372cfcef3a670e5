#!/usr/bin/env python3
"""Draws the CSV of `tidemark sweep`: its points with their Pareto front, or a heat map over two of its columns.

Usage: plot_sweep.py SWEEP.csv -o front.png [-o front.svg] [--x COLUMN] [--y COLUMN] [--color COLUMN]
       plot_sweep.py SWEEP.csv -o map.png --heat ACROSS DOWN [--value COLUMN]

Points that do not fit are hollow. A cell of the heat map is the least of its points. Needs matplotlib
(python3-matplotlib).
"""
import argparse
import csv

from matplotlib.ticker import FuncFormatter, MultipleLocator

from plotting import INK, fail, plt, save, scaled

NEEDED = {"index", "peak_bytes", "time_step_ns", "flops_total", "fits", "pareto", "error"}


def pretty(column, value):
    if column.endswith("_bytes"):
        return scaled(value)
    if column.endswith("_ns"):
        return scaled(value, ["ns", "us", "ms", "s"], 1000)
    if column.startswith("flops_"):
        return scaled(value, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"], 1000)
    return f"{value:.4g}"


def read(path):
    """The rows without an error."""
    try:
        with open(path, newline="", encoding="utf-8", errors="replace") as file:
            rows = csv.DictReader(file)
            if missing := NEEDED - set(rows.fieldnames or ()):
                fail(f"{path} is no sweep's CSV: no column {', '.join(sorted(missing))}")
            good = [row for row in rows if not row["error"]]
    except OSError as error:
        fail(f"{path}: {error.strerror}")
    if not good:
        fail(f"{path} has no row without an error")
    return good


def column(rows, name):
    if name not in rows[0]:
        fail(f"no column {name}; there are: {', '.join(rows[0])}")
    return [row[name] for row in rows]


def numbers(rows, name):
    try:
        return [float(value) for value in column(rows, name)]
    except ValueError:
        fail(f"column {name} does not hold a number in every row")


def in_order(values):
    """Each once: ascending where all are numbers, else as they come."""
    once = list(dict.fromkeys(values))
    try:
        return sorted(once, key=float)
    except ValueError:
        return once


def units_on(axis, name, most):
    axis.set_major_formatter(FuncFormatter(lambda value, _: pretty(name, value)))
    if name.endswith("_bytes"):
        axis.set_major_locator(MultipleLocator(2 ** max(0, (int(max(most, 1)) // 4).bit_length() - 1)))


def first_axis(rows):
    """The first varied column: they stand behind the index."""
    return list(rows[0])[1]


def front(rows, x, y, color):
    y = y or ("time_step_ns" if any(float(t or 0) > 0 for t in column(rows, "time_step_ns")) else "flops_total")
    xs, ys, kinds = numbers(rows, x), numbers(rows, y), column(rows, color)
    values = in_order(kinds)
    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    shade = plt.get_cmap("viridis")
    for place, value in enumerate(values):
        fill = shade(0.95 * place / max(len(values) - 1, 1))
        for fits in (True, False):
            at = [i for i, row in enumerate(rows) if kinds[i] == value and (row["fits"] != "false") == fits]
            axes.scatter([xs[i] for i in at], [ys[i] for i in at], s=34, facecolors=fill if fits else "none", edgecolors=[fill],
                         linewidths=1.3, zorder=3, label=value if fits or not any(
                             kinds[i] == value and row["fits"] != "false" for i, row in enumerate(rows)) else None)
    best = sorted((xs[i], ys[i]) for i, row in enumerate(rows) if row["pareto"] == "1")
    if best:
        axes.step(*zip(*best), where="post", color=INK, linestyle="--", linewidth=1.1, zorder=2, label="the front")
        axes.scatter(*zip(*best), s=90, facecolors="none", edgecolors=INK, linewidths=1.2, zorder=4)
    axes.set(xlabel=x, ylabel=y)
    units_on(axes.xaxis, x, max(xs))
    units_on(axes.yaxis, y, max(ys))
    if len(values) <= 16 and max(map(len, values)) <= 14:
        axes.legend(title=color, fontsize=8.5, title_fontsize=8.5, frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1))
    elif len(values) <= 16:
        axes.legend(title=color, fontsize=8.5, title_fontsize=8.5, frameon=False, loc="upper left", ncol=2,
                    bbox_to_anchor=(-0.02, -0.12))
    axes.grid(color="#d8dfe6", linewidth=0.6, zorder=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure


def heat(rows, across, down, value):
    columns, lines = in_order(column(rows, across)), in_order(column(rows, down))
    figures, least = numbers(rows, value), {}
    for row, figure in zip(rows, figures):
        key = (row[down], row[across])
        least[key] = min(least.get(key, (figure, row)), (figure, row), key=lambda pair: pair[0])
    grid = [[least.get((line, name), (float("nan"),))[0] for name in columns] for line in lines]
    figure, axes = plt.subplots(figsize=(max(5, 1.1 * len(columns) + 2), max(2.6, 0.55 * len(lines) + 1.4)), layout="constrained")
    picture = axes.imshow(grid, cmap="viridis_r", aspect="auto")
    low, high = min(figures), max(figures)
    for (line, name), (number, row) in least.items():
        dark = (number - low) / (high - low or 1) > 0.45
        axes.text(columns.index(name), lines.index(line), ("" if row["fits"] != "false" else "× ") + pretty(value, number),
                  ha="center", va="center", fontsize=8.5, color="white" if dark else INK)
    axes.set(xticks=range(len(columns)), yticks=range(len(lines)), xlabel=across, ylabel=down)
    axes.set_xticklabels(columns)
    axes.set_yticklabels(lines)
    figure.colorbar(picture, label=value + " (× does not fit)", format=FuncFormatter(lambda number, _: pretty(value, number)))
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sweep", help="CSV of tidemark sweep")
    parser.add_argument("-o", "--out", action="append", required=True, help="picture: .png, .svg, .pdf; repeatable")
    parser.add_argument("--x", default="peak_bytes")
    parser.add_argument("--y", help="time_step_ns, or flops_total where no time passes")
    parser.add_argument("--color", help="the first varied column")
    parser.add_argument("--heat", nargs=2, metavar=("ACROSS", "DOWN"), help="a heat map over these two columns")
    parser.add_argument("--value", default="peak_bytes", help="what the heat map shows")
    options = parser.parse_args()
    rows = read(options.sweep)
    figure = heat(rows, *options.heat, options.value) if options.heat else front(rows, options.x, options.y,
                                                                                 options.color or first_axis(rows))
    save(figure, options.out)


if __name__ == "__main__":
    main()
