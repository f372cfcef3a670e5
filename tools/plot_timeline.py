#!/usr/bin/env python3
"""Draws the tide of a timeline CSV (tidemark run --timeline): live bytes stacked by category, phases behind, the peak.

Usage: plot_timeline.py TIMELINE.csv -o tide.png [-o tide.svg] [--axis sequence|time] [--step N] [--rank N]
                        [--budget BYTES] [--title TEXT]

Every event is drawn, so no peak is averaged away. Needs matplotlib (python3-matplotlib).
"""
import argparse
import csv

from matplotlib.ticker import FuncFormatter, MultipleLocator

from plotting import fail, plt, save, scaled

# The colours of `tidemark run --report`; drawn from the bottom in this order.
COLORS = {"parameter": "#4477aa", "optimizer_state": "#e8a33d", "gradient": "#ee6677", "workspace": "#8a94a0",
          "input": "#7fc8d8", "activation": "#3f9e6b", "autograd_detail": "#9c755f", "temporary": "#aa77bb"}
PHASES = {"initial": "#8a94a0", "forward": "#4d9de0", "loss": "#e0a800", "recompute": "#ff8c42",
          "backward": "#b86adf", "optimizer": "#3bb273", "communication": "#e15554", "offload": "#7768ae"}
COLUMNS = {"seq", "time_ns", "step", "rank", "event", "op", "phase", "category", "bytes", "live_bytes"}


def read(path, rank, step):
    """Events of one rank: (x by sequence, time, phase, op, bytes by category, live), from the wanted step on its own."""
    now = dict.fromkeys(COLORS, 0)
    out = []
    try:
        with open(path, newline="", encoding="utf-8", errors="replace") as file:
            rows = csv.DictReader(file)
            if missing := COLUMNS - set(rows.fieldnames or ()):
                fail(f"{path} is no timeline CSV: no column {', '.join(sorted(missing))}")
            for row in rows:
                if int(row["rank"]) != rank:
                    continue
                now[row["category"]] += int(row["bytes"]) if row["event"] == "alloc" else -int(row["bytes"])
                live = int(row["live_bytes"])
                if sum(now.values()) != live:
                    fail(f"{path}:{rows.line_num}: live_bytes is {live}, the events so far make {sum(now.values())}")
                if step is None or int(row["step"]) == step or row["phase"] == "initial" and step == 0:
                    out.append((int(row["seq"]), int(row["time_ns"]), row["phase"], row["op"], dict(now), live))
    except OSError as error:
        fail(f"{path}: {error.strerror}")
    except (ValueError, KeyError) as error:
        fail(f"{path}: {error} is not what a timeline CSV holds")
    if not out:
        fail(f"{path} has no event of rank {rank}" + ("" if step is None else f" and step {step}"))
    return out


def phase_runs(events, x):
    """Stretches of one phase: (from, to, phase)."""
    start = 0
    for i in range(1, len(events) + 1):
        if i == len(events) or events[i][2] != events[start][2]:
            yield x[start], x[min(i, len(events) - 1)], events[start][2]
            start = i


def draw(events, by_time, budget, title):
    x = [e[1] / 1e6 for e in events] if by_time else [e[0] for e in events]
    figure, axes = plt.subplots(figsize=(11, 4.6), layout="constrained")
    used = [c for c in COLORS if any(e[4][c] for e in events)]
    axes.stackplot(x, [[e[4][c] for e in events] for c in used], colors=[COLORS[c] for c in used], labels=used,
                   step="post", linewidth=0)
    high = max(e[5] for e in events)
    seen = {}
    for left, right, phase in phase_runs(events, x):
        seen[phase] = axes.axvspan(left, right, color=PHASES[phase], alpha=0.12, linewidth=0, zorder=0)
    peak = max(range(len(events)), key=lambda i: events[i][5])
    axes.annotate(f"peak {scaled(high)}\n{events[peak][2]} {events[peak][3]}", (x[peak], high), (0, 14),
                  textcoords="offset points", ha="center", fontsize=9, arrowprops={"arrowstyle": "-|>"})
    if budget:
        axes.axhline(budget, color="#c2323b", linestyle="--", linewidth=1.2, label=f"budget {scaled(budget)}")
    top = max(high, budget or 0) * 1.2
    axes.set(xlim=(x[0], max(x[-1], x[0] + 1)), ylim=(0, max(top, 1)), xlabel="ms" if by_time else "allocations and frees",
             ylabel="live", title=title)
    step = 2 ** max(0, (int(max(top, 1)) // 4).bit_length() - 1)
    axes.yaxis.set_major_locator(MultipleLocator(step))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: scaled(value)))
    handles, labels = axes.get_legend_handles_labels()
    legend = axes.legend(handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.01, 1), fontsize=8.5,
                         frameon=False)
    axes.add_artist(legend)
    axes.legend(seen.values(), seen.keys(), loc="lower left", bbox_to_anchor=(1.01, 0), fontsize=8.5, frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("timeline", help="timeline CSV")
    parser.add_argument("-o", "--out", action="append", required=True, help="picture: .png, .svg, .pdf; repeatable")
    parser.add_argument("--axis", choices=("sequence", "time"), default="sequence")
    parser.add_argument("--step", type=int, help="one training step alone")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--budget", type=int, help="a line at this many bytes")
    parser.add_argument("--title", default="")
    options = parser.parse_args()
    events = read(options.timeline, options.rank, options.step)
    by_time = options.axis == "time"
    if by_time and events[-1][1] == events[0][1]:
        fail("no time passes in this timeline; use --axis sequence")
    figure = draw(events, by_time, options.budget, options.title)
    save(figure, options.out)


if __name__ == "__main__":
    main()
