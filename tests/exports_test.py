#!/usr/bin/env python3
"""Do the exports for other people's viewers keep those viewers' rules, and say the same peak to the byte?

Usage: exports_test.py PROGRAM
"""
import collections
import csv
import json
import pathlib
import pickle
import re
import sys
import tempfile

from harness import ROOT, Tally, run
from page_test import runs_of

SCENARIOS = ["gpt2-small-every-3", "chain-seed-36", "chain-64-nested", "mlp-reference", "llama-3.1-8b-selective"]
TORCH_CATEGORIES = ["parameter", "optimizer_state", "input", "temporary", "activation", "gradient", "autograd_detail",
                    "workspace"]
NASTY = 'say "a", </script><b>&\u2028'


def rows_of(path):
    """The timeline CSV: (time, event, phase, category, bytes, live), a row an event."""
    with open(path, newline="", encoding="utf-8", errors="replace") as file:
        return [(int(r["time_ns"]), r["event"], r["phase"], r["category"], int(r["bytes"]), int(r["live_bytes"]))
                for r in csv.DictReader(file)]


def trace_problem(trace, rows, peak):
    """What the trace-event rules or our own figures say against it."""
    events = [e for e in trace["traceEvents"] if e["ph"] != "M"]
    if not {e["ph"] for e in events} <= set("XCisf"):  # every slice is complete: no B waits for its E
        return "an event of another kind"
    if any(type(value) is not int for e in events if e["ph"] == "C" for value in e["args"].values()):
        return "a counter that is no whole number"
    if any(a["ts"] > b["ts"] for a, b in zip(events, events[1:])):
        return "times do not ascend"
    counters = [e["args"]["bytes"] for e in events if e["ph"] == "C" and e["name"] == "live_bytes"]
    if counters != [r[5] for r in rows]:
        return "the counter is not the timeline's live_bytes"
    last = collections.Counter()
    for e in events:
        if e["ph"] == "C" and e["name"] != "live_bytes":
            last[e["name"]] = e["args"]["bytes"]
    if sum(last.values()) != (rows[-1][5] if rows else 0):
        return "the categories do not add up"
    instants = [e for e in events if e["ph"] == "i"]
    if [e["args"]["bytes"] for e in instants] != [peak] * bool(rows):
        return f"the peak's instant says {instants}"
    slices = [e for e in events if e["ph"] == "X"]
    if any(e["dur"] < 0 for e in slices):
        return "a slice of negative length"
    busy = collections.defaultdict(float)
    for e in slices:
        track = (e["pid"], e["tid"])
        if e["ts"] < busy[track] - 1e-6:
            return f"slices of one track overlap at {e}"
        busy[track] = e["ts"] + e["dur"]
    starts = {e["id"] for e in events if e["ph"] == "s"}
    ends = {e["id"] for e in events if e["ph"] == "f"}
    recomputes = {e["args"]["seq"] for e in slices if e["cat"] == "recompute"}
    if starts != ends or starts != recomputes:
        return f"{len(starts)} arrows begin, {len(ends)} end, for {len(recomputes)} recomputed ops"
    at = {e["args"]["seq"]: e for e in slices}
    if any(e["ts"] != at[e["id"]]["ts"] for e in events if e["ph"] == "f"):
        return "an arrow ends elsewhere than at its recompute"
    return ""


def raw_problem(raw, rows):
    """PyTorch's raw memory timeline against our CSV."""
    expected = []
    for time, event, phase, category, size, _ in rows:
        initial = phase == "initial"
        action = 1 if initial else 2 if event == "alloc" else 4
        expected.append([-1 if initial else time, action, size if event == "alloc" else -size,
                         TORCH_CATEGORIES.index(category)])
    return "" if raw == expected else "the raw timeline is not the CSV's"


def snapshot_problem(snapshot, rows, peak):
    """Replays the trace backwards from the segments, as PyTorch's viewer does."""
    live, total = {}, 0
    for segment in snapshot["segments"]:
        at = segment["address"]
        for block in segment["blocks"]:
            if block["address"] != at:
                return "blocks do not stand edge to edge"
            at += block["size"]
            if block["state"] == "active_allocated":
                live[at - block["size"]] = block["requested_size"]
        if at != segment["address"] + segment["total_size"]:
            return "blocks do not fill the segment"
    total = sum(live.values())
    levels = [total]
    trace = snapshot["device_traces"][0]
    for entry in reversed(trace):
        if not all(set(f) == {"filename", "line", "name"} for f in entry["frames"]) or len(entry["frames"]) < 2:
            return f"frames of {entry}"
        if entry["action"] == "alloc":
            if live.pop(entry["addr"], None) != entry["size"]:
                return f"no such block: {entry}"
            total -= entry["size"]
            levels.append(total)
        elif entry["action"] == "free_completed":
            if any(a < entry["addr"] + entry["size"] and entry["addr"] < a + s for a, s in live.items()):
                return f"overlaps: {entry}"
            live[entry["addr"]] = entry["size"]
            total += entry["size"]
            levels.append(total)
    levels.reverse()
    ours = [r[5] for r in rows if r[2] != "initial"]
    start = [r[5] for r in rows if r[2] == "initial"][-1:] or [0]
    if levels != start + ours:
        return "the replayed totals are not the timeline's"
    return "" if max(levels) == peak else f"peak {max(levels)}, not {peak}"


def raw_peak(raw):
    """Of the raw timeline, as PyTorch's MemoryProfileTimeline sums it up."""
    level = highest = 0
    for _, action, size, _ in raw:
        level += size if action in (1, 2, 4) else 0
        highest = max(highest, level)
    return highest


def page_peak(page):
    """Of the columns a page carries."""
    data = runs_of(page)[0]
    level = highest = born = 0
    for what in data["events.what"]:
        level += -data["storages.bytes"][born - what] if what else data["storages.bytes"][born]
        born += what == 0
        highest = max(highest, level)
    return highest


def same_peak_problem(program, scenario, folder):
    """The peak, to the byte, by each way out of the program. (The snapshot's is compared where it is replayed.)"""
    _, text, _ = run([program, "run", scenario, "--report", folder / "p.html", "--timeline", folder / "p.csv", "--trace",
                      folder / "p.json", "--timeline-json", folder / "p.raw", "--ops", folder / "o.csv"])
    problem, summary, rows, trace, raw, snapshot = exports(program, scenario, folder)
    if problem:
        return problem
    said = re.search(r"^Peak +.*?(?:\(([\d,]+) B\)|(\d+) B)", text.decode(), re.MULTILINE)
    with open(folder / "o.csv", newline="", encoding="utf-8") as file:
        ops = max(int(row["peak_bytes"]) for row in csv.DictReader(file))
    page = (folder / "p.html").read_text("utf-8")
    peaks = {"summary": int((said[1] or said[2]).replace(",", "")), "JSON": summary["peak_bytes"], "CSV": max(r[5] for r in rows),
             "ops CSV": ops, "report's summary": runs_of(page)[0]["summary"]["peak_bytes"], "report's events": page_peak(page),
             "trace": trace["otherData"]["peak_bytes"], "raw timeline": raw_peak(raw)}
    return (snapshot_problem(snapshot, rows, peaks["summary"]) or
            ("" if len(set(peaks.values())) == 1 else f"peaks are {peaks}"))


def torch_problem(folder):
    """What PyTorch's own viewer says of our snapshot, where there is a PyTorch that knows snapshots (2 and up)."""
    try:
        from torch.cuda import _memory_viz  # noqa: PLC0415  (it may not be there)
    except ImportError:
        return None
    if not hasattr(_memory_viz, "segsum"):
        return None
    snapshot = pickle.loads((folder / "s.pickle").read_bytes())
    text = _memory_viz.segsum(snapshot) + _memory_viz.trace(snapshot)
    return "" if "alloc" in text else "the viewer shows no allocation"


def exports(program, scenario, folder, sets=()):
    """Runs a scenario: (problem, summary, rows, and what each export holds)."""
    names = {"trace": "t.json", "timeline-json": "r.json", "snapshot": "s.pickle", "timeline": "t.csv"}
    words = [w for option, name in names.items() for w in ("--" + option, folder / name)]
    code, out, err = run([program, "run", scenario, "--json", *words, *sets])
    if code:
        return err.decode(), *[None] * 5
    return ("", json.loads(out), rows_of(folder / "t.csv"), json.loads((folder / "t.json").read_text("utf-8")),
            json.loads((folder / "r.json").read_text("utf-8")), pickle.loads((folder / "s.pickle").read_bytes()))


def nasty(program, folder, tally):
    """Names that could break a format come out as they went in."""
    (folder / "nasty.csv").write_bytes(b'id,inputs,layer_activation_bytes,output_bytes\n"' +
                                       NASTY.replace('"', '""').encode() + b'",,100,10\nb,,50,5\n')
    scenario = folder / "nasty.yaml"
    scenario.write_text("model: {family: graph, file: nasty.csv}\n")
    problem, summary, rows, trace, raw, snapshot = exports(program, scenario, folder)
    if problem:
        tally.case("nasty names", problem)
        return
    layers = {e["args"]["layer"] for e in trace["traceEvents"] if e["ph"] == "X"}
    files = {f["filename"] for e in snapshot["device_traces"][0] for f in e["frames"]}
    tally.case("nasty names: trace", "" if NASTY in layers else f"layers are {layers}")
    tally.case("nasty names: snapshot", "" if NASTY in files else f"files are {files}")
    tally.case("nasty names: totals", trace_problem(trace, rows, summary["peak_bytes"]) or raw_problem(raw, rows) or
               snapshot_problem(snapshot, rows, summary["peak_bytes"]))


def edges(program, folder, tally):
    """No event, one event, all at one time."""
    for name, model in {"no event": "layers: 1", "one event": "layers: 1, layer_activation: 0 B, boundary: 0 B, loss_workspace: 5 B",
                        "all at one time": "layers: 3, layer_activation: 10 B, boundary: 3 B"}.items():
        scenario = folder / "edge.yaml"
        scenario.write_text(f"model: {{family: chain, {model}}}\n")
        problem, summary, rows, trace, raw, snapshot = exports(program, scenario, folder)
        problem = problem or trace_problem(trace, rows, summary["peak_bytes"]) or raw_problem(raw, rows)
        tally.case(name, problem or snapshot_problem(snapshot, rows, summary["peak_bytes"]))


def main():
    program, tally = pathlib.Path(sys.argv[1]).resolve(), Tally()
    with tempfile.TemporaryDirectory() as home:
        folder = pathlib.Path(home)
        nasty(program, folder, tally)
        edges(program, folder, tally)
        for name in SCENARIOS:
            problem, summary, rows, trace, raw, snapshot = exports(program, ROOT / f"scenarios/{name}.yaml", folder)
            if problem:
                tally.case(name, problem)
                continue
            peak = summary["peak_bytes"]
            tally.case(f"{name}: trace", trace_problem(trace, rows, peak))
            tally.case(f"{name}: raw timeline", raw_problem(raw, rows))
            tally.case(f"{name}: snapshot", snapshot_problem(snapshot, rows, peak))
            tally.case(f"{name}: one peak", same_peak_problem(program, ROOT / f"scenarios/{name}.yaml", folder))
            if (said := torch_problem(folder)) is not None:
                tally.case(f"{name}: in PyTorch's viewer", said)
    tally.finish()


if __name__ == "__main__":
    main()
