"""Predicted against measured, every row of every table, as an SVG that is the same for the same figures."""
import statistics

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend comes first)

BYTES = {"B": 1, "MiB": 1 << 20, "thousand MiB": 1000 << 20, "GiB": 1 << 30, "GB": 10**9, "MB": 10**6}
INK, BOUNDED, OPEN, FAINT = "#333333", "#33618f", "#c2573a", "#bbbbbb"


def in_bytes(value, _):
    for size, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if value >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g} B"


def marks(axes, x, y, explained):
    style = {"color": BOUNDED, "linewidths": 0} if explained else {"facecolors": "none", "edgecolors": OPEN, "linewidths": 0.9}
    axes.scatter(x, y, s=15 if explained else 20, alpha=0.75, zorder=3, **style)


def is_bound(table, line):
    return line.case.bounded and not table.bound.startswith("none")


def draw_sizes(axes, results):
    """Ours over measured on one scale, of tables in bytes."""
    places = [line.case.measured * BYTES[table.unit] for table, lines in results if table.unit in BYTES for line in lines]
    ends = [min(places) / 1.5, max(places) * 1.5]
    axes.plot(ends, ends, color=FAINT, linewidth=1, zorder=1)
    for table, lines in results:
        for explained in (True, False):
            chosen = [line for line in lines if table.unit in BYTES and is_bound(table, line) == explained]
            size = BYTES.get(table.unit, 0)
            marks(axes, [line.case.measured * size for line in chosen], [line.ours * size for line in chosen], explained)
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="measured", ylabel="simulated")
    axes.xaxis.set_major_formatter(in_bytes)
    axes.yaxis.set_major_formatter(in_bytes)
    axes.set_title("All rows in bytes: on the line, ours is what was measured", fontsize=9, loc="left")


def draw_errors(axes, results):
    """A line of marks a table: the error of each row, and a bar at the median of those that are explained."""
    for place, (table, lines) in enumerate(results):
        for explained in (True, False):
            errors = [100 * line.relative for line in lines if is_bound(table, line) == explained]
            marks(axes, errors, [place] * len(errors), explained)
        bounded = [100 * line.relative for line in lines if line.case.bounded]
        if bounded:
            middle = statistics.median(bounded)
            axes.plot([middle, middle], [place - 0.36, place + 0.36], color=INK, linewidth=1.6, zorder=4)
    axes.axvline(0, color=FAINT, linewidth=1, zorder=1)
    axes.set_xscale("symlog", linthresh=1, linscale=0.8)
    axes.set(xlim=(-110, 110), ylim=(len(results) - 0.4, -0.6), xlabel="error of ours, % (linear from -1 to 1)")
    ticks = [-100, -50, -20, -10, -5, -2, -1, 0, 1, 2, 5, 10, 20, 50, 100]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_yticks(range(len(results)), [f"{table.name}, {len(lines)}" for table, lines in results])
    axes.tick_params(axis="y", length=0)
    axes.set_title("By table and number of rows: the error of each row. Bar: median. Hollow: under no bound", fontsize=9,
                   loc="left")


def draw(path, results):
    """`results`: tables with their lines. Tables of orders have no errors: the sizes are not the measured job's."""
    shown = [(table, lines) for table, lines in results if any(line.case.bounded for line in lines)]
    plt.rcParams.update({"svg.hashsalt": "tidemark", "font.size": 8.5, "axes.spines.top": False,
                         "axes.spines.right": False})
    figure, (above, below) = plt.subplots(2, 1, figsize=(8, 5.2 + 0.24 * len(shown)),
                                          height_ratios=[4.6, 0.24 * len(shown)])
    draw_sizes(above, shown)
    draw_errors(below, shown)
    for axes in (above, below):
        axes.grid(True, axis="both" if axes is above else "x", linewidth=0.3)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if str(path).endswith(".svg") else None)
