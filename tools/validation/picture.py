"""Predicted against measured bytes, every row of every table, as an SVG that is the same for the same figures."""
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend comes first)

COLORS = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#e8a33d", "#5e6773", "#3f9e6b", "#9c755f"]
MARKS = "os^vDPH*"
BYTES = {"B": 1, "MiB": 1 << 20, "thousand MiB": 1000 << 20, "GiB": 1 << 30, "GB": 10**9, "MB": 10**6}


def draw(path, results):
    """Above: ours against measured on one scale. Below: our error of each row, in percent. Hollow: not explained."""
    plt.rcParams.update({"svg.hashsalt": "tidemark", "font.size": 9, "axes.spines.top": False,
                         "axes.spines.right": False})
    figure, (above, below) = plt.subplots(2, 1, figsize=(8, 8.5), sharex=True, height_ratios=[2, 1])
    low, high = float("inf"), 0
    for number, (table, lines) in enumerate(results):
        bounded = [line for line in lines if line.case.bounded]
        if not bounded or table.unit not in BYTES:
            continue  # a table of orders: the sizes are not the measured job's; or one of times
        size = BYTES[table.unit]
        rest = [line for line in lines if not line.case.bounded]
        hollow = {"s": 22, "facecolors": "none", "edgecolors": COLORS[number % len(COLORS)], "linewidths": 0.8,
                  "marker": MARKS[number % len(MARKS)]}
        places = [line.case.measured * size for line in rest]
        above.scatter(places, [line.ours * size for line in rest], **hollow)
        below.scatter(places, [100 * line.relative for line in rest], **hollow)
        measured = [line.case.measured * size for line in bounded]
        style = {"s": 16, "color": COLORS[number % len(COLORS)], "marker": MARKS[number % len(MARKS)], "alpha": 0.7,
                 "linewidths": 0}
        above.scatter(measured, [line.ours * size for line in bounded], label=f"{table.name} ({len(bounded)})", **style)
        below.scatter(measured, [100 * line.relative for line in bounded], **style)
        low, high = min([low, *measured]), max([high, *measured])
    above.plot([low, high], [low, high], color="#999999", linewidth=0.8, zorder=0)
    below.axhline(0, color="#999999", linewidth=0.8, zorder=0)
    for axes in (above, below):
        axes.set_xscale("log")
        axes.grid(True, linewidth=0.3)
    above.set_yscale("log")
    above.set_ylabel("simulated, bytes")
    above.legend(fontsize=8, frameon=False)
    below.set_yscale("symlog", linthresh=1)
    below.margins(y=0.08)
    below.set_ylabel("error, %")
    below.set_xlabel("measured, bytes")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
