#!/usr/bin/env python3
"""Draws the README's two pictures from runs of the program, and prints their figures.

  six     six recompute settings of GPT-2 small side by side, each bar coloured by what holds its peak
  budget  the true peak of a chain against the bytes its forward saves, recomputed up front and just in time

Usage: plot_settings.py PROGRAM six|budget -o picture.png [-o picture.svg]

Needs matplotlib (python3-matplotlib).
"""
import argparse
import collections
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

from plotting import INK, plt, save

ROOT = pathlib.Path(__file__).resolve().parent.parent
QUIET = "#5c6b7a"

# What can hold the peak, in the order of the bars.
HOLDERS = {"parameters, optimizer": "#4477aa", "gradients": "#ee6677", "saved by forward": "#3f9e6b",
           "rebuilt by recomputation": "#ff8c42", "logits and loss": "#aa77bb", "at work": "#9aa5b1"}

SIX = [
    ("nothing is recomputed", "none",
     "All that forward saved is still there when logits and loss come on top."),
    ("attention core of each block", "{kind: selective, recompute: [core_attn]}",
     "The largest tensors are the cheapest to run again: {lower:.0f} % lower for {time:.0f} % more time."),
    ("segments of 6 blocks", "{kind: interval, interval: 6}",
     "Forward keeps two block inputs. A whole segment is rebuilt at once, and that is the peak."),
    ("segments of 3 blocks", "{kind: interval, interval: 3}",
     "Shorter segments, less rebuilt at once, for the same {time:.0f} % more time."),
    ("each block", "full",
     "One block is rebuilt at a time. Now the loss is the peak, and no segment can be short enough to lower it."),
    ("each block, all right after the loss", "{kind: full, schedule: up_front}",
     "The same recomputation in one go: all is back at once, and nothing is gained."),
]


def run(program, scenario, settings, timeline=None):
    """The run's summary."""
    words = [w for one in settings for w in ("--set", one)] + (["--timeline", timeline] if timeline else [])
    done = subprocess.run([program, "run", ROOT / "scenarios" / scenario, "--json", *words], capture_output=True, check=False)
    if not done.stdout:
        sys.exit(done.stderr.decode())
    return json.loads(done.stdout)


def holder(row):
    """Which of HOLDERS a tensor alive at the peak belongs to."""
    if row["category"] in ("parameter", "optimizer_state"):
        return "parameters, optimizer"
    if row["tensor"].startswith(("loss", "lm_head")) and row["category"] != "gradient":
        return "logits and loss"
    if row["phase"] == "recompute":
        return "rebuilt by recomputation"
    if row["category"] == "activation" and row["phase"] == "forward":
        return "saved by forward"
    return "gradients" if row["category"] == "gradient" else "at work"


def held_at_peak(path):
    """Bytes by holder, from a timeline CSV."""
    alive, live, peak = {}, 0, (0, {})
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["event"] == "alloc":
                alive[row["id"]] = row
            else:
                del alive[row["id"]]
            live = int(row["live_bytes"])
            if live > peak[0]:
                peak = (live, dict(alive))
    out = collections.Counter()
    for row in peak[1].values():
        out[holder(row)] += int(row["bytes"])
    assert sum(out.values()) == peak[0]
    return out


def six(program):
    figure, axes = plt.subplots(figsize=(10, 5.3), layout="constrained")
    first = None
    with tempfile.TemporaryDirectory() as home:
        for place, (name, policy, sentence) in enumerate(SIX):
            path = pathlib.Path(home) / "t.csv"
            summary = run(program, "gpt2-small-every-3.yaml", ["policy=" + policy], path)
            held, peak, time = held_at_peak(path), summary["peak_bytes"], summary["time_ns"]["step"]
            assert sum(held.values()) == peak
            first = first or (peak, time)
            left = 0
            for what, color in HOLDERS.items():
                axes.barh(place, held[what] / 2**30, 0.44, left, color=color, label=what if place == 0 else None)
                left += held[what] / 2**30
            more = 100 * (time / first[1] - 1)
            axes.text(left + 0.15, place, f"{peak / 2**30:.1f} GiB" + (f"   +{more:.0f} % time" if place else ""),
                      va="center", fontsize=10.5, color=INK, fontweight="bold")
            text = sentence.format(lower=100 * (1 - peak / first[0]), time=more)
            axes.text(0, place + 0.41, text, va="center", fontsize=9, color=QUIET)
            print(f"{peak:>14,} B  +{more:4.1f} %  {policy}\n" +
                  "".join(f"{held[what]:>20,} B  {what}\n" for what in HOLDERS if held[what]), end="")
    axes.set(yticks=range(len(SIX)), ylim=(len(SIX) - 0.3, -0.5), xlim=(0, 30), xticks=[], xlabel="")
    axes.set_yticklabels([name for name, *_ in SIX], fontsize=10.5, color=INK)
    axes.set_title("What is recomputed in GPT-2 small (batch 8 × 1024, AdamW), and what then holds the peak",
                   loc="left", fontsize=11.5, color=INK, x=-0.3)
    axes.tick_params(length=0)
    axes.legend(loc="upper center", bbox_to_anchor=(0.38, 0.01), ncol=6, fontsize=9.5, frameon=False, handlelength=1,
                columnspacing=1.3)
    for side in axes.spines.values():
        side.set_visible(False)
    return figure


def budget(program):
    """Of 36 layers the first n are recomputed, as many as it takes for forward to save no more than the budget."""
    model = ["model.boundary=25 MB", "model.loss_workspace=1 GB"]
    saved, peaks = [], {"up_front": [], "just_in_time": []}
    for n in range(0, 37):
        for schedule, out in peaks.items():
            policy = f'{{kind: selective, layers: "0-{n - 1}", schedule: {schedule}}}' if n else "none"
            summary = run(program, "chain-seed-36.yaml", [*model, "policy=" + policy])
            out.append(summary["peak_bytes"] / 1e6)
        saved.append(summary["forward_end_bytes"] / 1e6)
        print(f"{n:2} layers recomputed: forward saves {saved[-1]:5.0f} MB, peak "
              f"{peaks['up_front'][-1]:5.0f} MB up front, {peaks['just_in_time'][-1]:5.0f} MB just in time")
    figure, axes = plt.subplots(figsize=(10, 3.6), layout="constrained")
    low = min(range(37), key=lambda i: peaks["up_front"][i])
    for schedule, color, text, place in [
            ("up_front", "#c2323b", f"recomputed up front, right after the loss: lowest at {peaks['up_front'][low]:,.0f} MB, "
             "and a smaller budget raises it again", (0, 10)),
            ("just_in_time", "#1a7f4b", "recomputed just in time, each before its backward: the smaller the budget, the lower",
             (38, -8))]:
        axes.plot(saved, peaks[schedule], color=color, linewidth=2.2)
        axes.annotate(text, (saved[-1], peaks[schedule][-1]), place, textcoords="offset points", color=color, fontsize=10)
    axes.plot(saved[low], peaks["up_front"][low], "o", color="#c2323b")
    axes.set_title("36 layers of 100 MB, their inputs 25 MB each, a loss that takes 1 GB: what may forward save?", loc="left",
                   fontsize=11.5, color=INK)
    axes.set(xlabel="budget: MB that forward may save", ylabel="true peak, MB", xlim=(saved[-1] - 20, saved[0] + 20), ylim=(0, 5200))
    axes.grid(color="#d8dfe6", linewidth=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="tidemark")
    parser.add_argument("what", choices=("six", "budget"))
    parser.add_argument("-o", "--out", action="append", required=True, help="picture: .png, .svg, .pdf; repeatable")
    options = parser.parse_args()
    figure = {"six": six, "budget": budget}[options.what](options.program)
    save(figure, options.out, dpi=110)


if __name__ == "__main__":
    main()
