#!/usr/bin/env python3
"""Do the pages of `run --report` and `sweep --report` open without errors, show the right figures, and follow the cursor?

What can be seen in the file alone is checked everywhere; what needs a browser, where chromium is installed.

Usage: page_test.py PROGRAM
"""
import base64
import collections
import csv
import html
import itertools
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zlib

from harness import ROOT, Tally, run

SCENARIOS = ["gpt2-small-every-3", "chain-seed-36", "mlp-reference"]
NASTY = 'say "a", </script><script>tidemark.errors.push("harm")</script><b>&\u2028'
SECONDS = 120

# Runs in the page; what it finds is the text of #probe.
PROBE_FRAME = r"""
<script>
(async () => {
  const frame = () => new Promise(done => setTimeout(done, 60));
  while (!tidemark.ready && tidemark.errors.length === 0) await frame();
@PROBE@    document.getElementById('theme').click();
    await frame();
  } catch (error) {
    out.faults.push(error.stack);
  }
  const probe = document.createElement('pre');
  probe.id = 'probe';
  probe.textContent = JSON.stringify(out);
  document.body.append(probe);
})();
</script>
</body>"""

PROBE = r"""
  const out = {errors: tidemark.errors, faults: []};
  const expect = (is, what) => { if (!is) out.faults.push(what); };
  try {
    const {models, overlay, tide, table, lives} = tidemark, model = tide.model;
    const sum = row => row.slice(1).reduce((a, b) => a + b, 0);
    const level = (low, high) => Math.max(0, ...tide.rows().filter(r => r[0] >= low && r[0] <= high).map(sum));
    const highest = () => model.count ? model.live.reduce((a, b) => Math.max(a, b), 0) : 0;
    // A column of the picture is as high as its highest event. So no slice hides an event of its own, and none shows
    // more than the events up to a column away.
    const hidden = axis => {
      const rows = tide.rows(), [low, high] = tide.window, slices = 40, column = (high - low) / tide.graph.getArea().w;
      const levels = Array.from({length: model.count}, (_, event) => [model.x(event, axis), model.live[event]]);
      const drawn = rows.map(row => [row[0], sum(row)]);
      const top = (list, from, to) => {
        let highest = 0, before = 0;
        for (const [x, level] of list) {
          if (x < from) before = level; else if (x <= to) highest = Math.max(highest, level);
        }
        return Math.max(highest, before);
      };
      for (let k = 0; k < slices; ++k) {
        const from = low + k * (high - low) / slices, to = low + (k + 1) * (high - low) / slices;
        expect(top(drawn, from - column, to + column) >= top(levels, from, to), `${axis}: ${from} to ${to} hides an event`);
        if (k === 0 || k === slices - 1) continue;  // beyond the window's ends columns are wider
        expect(top(drawn, from, to) <= top(levels, from - 2 * column, to + 2 * column), `${axis}: ${from} to ${to} invents one`);
      }
    };
    out.peak = model.count ? model.live[model.peak] : 0;
    expect(out.peak === highest(), 'the marked peak is not the highest level');
    out.held = model.summary.peak_tensors.map(t => [t.tensor, t.held_by]);
    const at = model.liveSet(model.peak, out.held.length);
    out.shown = at.map(id => [model.name(id), model.heldBy(id, model.peak)]);
    expect(document.getElementById('scenario').textContent === (model.summary.scenario || 'Tidemark'), 'the title');
    for (const axis of ['events', 'time']) {
      if (axis === 'time' && !model.timed) continue;
      tide.setAxis(axis);
      tide.all();
      hidden(axis);
      const [start, end] = model.extent(axis);
      expect(level(start, end) === out.peak, `${axis}: the whole picture's top is ${level(start, end)}`);
      const xs = tide.rows().map(r => r[0]);
      expect(xs.every((x, i) => i === 0 || xs[i - 1] < x), `${axis}: two rows at one place`);
      for (const part of [0.5, 0.03, 0.001]) {
        const x = model.count ? model.x(model.peak, axis) : 0, half = part * (end - start) / 2;
        tide.setWindow(x - half, x + half);
        expect(level(...tide.window) === out.peak, `${axis}: zoomed to ${part} the top is ${level(...tide.window)}`);
        hidden(axis);
      }
      tide.all();
      const box = tide.host.getBoundingClientRect(), area = tide.graph.getArea();
      const seen = new Set();
      for (const share of [0.1, 0.35, 0.6, 0.9]) {
        tide.host.dispatchEvent(new MouseEvent('mousemove', {clientX: box.left + area.x + share * area.w, clientY: box.top + 50}));
        await frame();
        if (model.count === 0) continue;
        seen.add(tide.cursor);
        expect(table.event === tide.cursor, `${axis}: the table is at ${table.event}, the cursor at ${tide.cursor}`);
        const ids = model.liveSet(tide.cursor, Infinity);
        expect(ids.reduce((a, id) => a + model.storages.bytes[id], 0) === model.live[tide.cursor], 'the live set does not add up');
        const rows = document.querySelectorAll('#live tbody tr');
        expect(rows.length === Math.min(ids.length, table.most), `${rows.length} rows for ${ids.length} tensors`);
        const first = ids.length ? model.name(ids[0]) : undefined;
        const top = rows.length ? rows[0].cells[0].textContent : undefined;
        expect(top === first, `the first row is ${top}, not ${first}`);
        const near = model.x(tide.cursor, axis), here = start + share * (end - start);
        expect(axis === 'time' || Math.abs(near - here) <= 1 + 2 * (end - start) / area.w, `the cursor at ${near}, the mouse at ${here}`);
      }
      expect(model.count < 10 || seen.size > 1, 'the cursor does not move');
    }
    const key = (name) => document.body.dispatchEvent(new KeyboardEvent('keydown', {key: name, bubbles: true}));
    out.runs = [];
    for (let i = 0; i < models.length && models.length > 1; ++i) {
      key(String(i + 1));
      await frame();
      expect(overlay.chosen === i && tide.model === models[i] && table.model === models[i], `key ${i + 1} does not show run ${i}`);
      tide.setAxis('events');
      tide.all();
      const differences = {};
      for (const axis of ['events', 'time']) {
        tide.setAxis(axis);
        tide.all();
        differences[axis] = models.map((_, k) => k === i ? [0, 0] : overlay.differences(k, tide.window, axis, 900)
          .reduce((a, b) => [Math.min(a[0], b[0]), Math.max(a[1], b[1])], [0, 0]));
      }
      tide.setAxis('events');
      tide.setCursor(Math.floor(models[i].count / 2));
      const cell = (k, at) => document.querySelectorAll('#runs tr')[k + 1].cells[at].textContent;
      expect(cell(i, 6) === prettyBytes(models[i].live[tide.cursor]), 'the level at the cursor in the table of runs');
      const ids = models[i].liveSet(tide.cursor, 1);
      expect(document.querySelector('#live tbody tr').cells[0].textContent === models[i].name(ids[0]), 'the table of the shown run');
      out.runs.push({label: models[i].label, peak: models[i].live[models[i].peak], measured: models[i].measured, differences});
    }
    if (models.length > 1) tidemark.choose(0);
    if (model.count > 1) {
      tide.host.focus();
      tide.host.dispatchEvent(new KeyboardEvent('keydown', {key: 'Home', bubbles: true}));
      expect(tide.cursor === 0, 'Home');
      tide.host.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true}));
      expect(tide.cursor === 1 && table.event === 1, 'ArrowRight');
      tide.host.dispatchEvent(new KeyboardEvent('keydown', {key: 'p', bubbles: true}));
      expect(tide.cursor === model.peak, 'p');
      document.getElementById('zoom-in').click();
      expect(tide.window[1] - tide.window[0] < model.extent(tide.axis)[1] || model.count < 9, 'zoom');
      lives.atCursor = false;
      lives.update();
      table.filter.value = 'no such tensor anywhere';
      table.show(tide.cursor);
      expect(document.querySelectorAll('#live tbody tr').length === 0, 'the filter');
    }
"""


# The same for the page of a sweep.
SWEEP_PROBE = r"""
  const out = {errors: tidemark.errors, faults: []};
  try {
    const {points, scatter, heat} = tidemark;
    const settings = i => points.axes.map(axis => points.text(axis, i));
    out.front = points.front.map(settings);
    out.rows = document.querySelectorAll('#front tr').length - 1;
    heat.across = points.axes[0];
    heat.down = points.axes[1];
    heat.draw();
    out.cells = [...heat.cells().out.values()].map(cell => [...settings(cell.point).slice(0, 2), cell.value]);
    out.hover = [];
    const box = scatter.host.getBoundingClientRect();
    for (const [x, y, i] of scatter.spots) {
      scatter.host.dispatchEvent(new MouseEvent('mousemove', {clientX: box.left + x, clientY: box.top + y}));
      out.hover.push([settings(i), settings(scatter.picked), document.getElementById('point').textContent]);
    }
    scatter.host.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowLeft'}));
"""


def runs_of(page):
    """The runs a page carries: their heads, with the columns in place ("events.what": [...])."""
    data = zlib.decompress(base64.b64decode(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1], validate=True))
    parts, runs = [], []
    while data:
        length = int.from_bytes(data[:4], "little")
        parts.append(data[4:4 + length])
        data = data[4 + length:]
    for head, columns in zip(parts[::2], parts[1::2]):
        run_data, numbers = json.loads(head), leb128(columns)
        for name, count in run_data["columns"]:
            run_data[name] = list(itertools.accumulate(itertools.islice(numbers, count)))
        if next(numbers, None) is not None:
            raise ValueError("bytes after the last column")
        runs.append(run_data)
    return runs


def leb128(data):
    """Numbers of seven bits a byte, the lowest first, zigzag."""
    value = shift = 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield -(value + 1) // 2 if value % 2 else value // 2
            value = shift = 0


def file_problem(page, peak):
    """What can be said against the file without a browser."""
    data = runs_of(page)[0]
    live = highest = born = 0
    sizes = data["storages.bytes"]
    for what in data["events.what"]:
        live += -sizes[born - what] if what else sizes[born]
        born += what == 0
        highest = max(highest, live)
    if highest != peak or data["summary"]["peak_bytes"] != peak:
        return f"the events' peak is {highest}, the summary's {data['summary']['peak_bytes']}, the run's {peak}"
    if len(data["holders.count"]) != len(sizes):
        return "not every storage has holders"
    if re.search(r'(src|href)\s*=|@import|url\(', page[:page.index("<script")]):
        return "the page asks for another file"
    return "" if page.count("<script") == page.count("</script") == 3 else "a name opens or closes a script"


def in_browser(chromium, page, folder, probe=PROBE):
    """What the probe finds in the page."""
    path = folder / "probe.html"
    head, tail = page.rsplit("</body>", 1)
    path.write_text(head + PROBE_FRAME.replace("@PROBE@", probe.lstrip("\n")) + tail, "utf-8")
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run([chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
                               f"--user-data-dir={profile}", "--window-size=1400,1200", "--virtual-time-budget=20000",
                               "--dump-dom", path.as_uri()], capture_output=True, check=False, timeout=SECONDS,
                              stdin=subprocess.DEVNULL)
    found = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout.decode("utf-8", "replace"), re.DOTALL)
    return json.loads(html.unescape(found[1])) if found else {"errors": ["the probe did not finish"], "faults": []}


def browser_problem(found, peak):
    if found["errors"] or found["faults"]:
        return "\n".join(found["errors"] + found["faults"])
    if found["peak"] != peak:
        return f"the page's peak is {found['peak']}, the run's {peak}"
    return "" if found["held"] == found["shown"] else f"held by: {found['shown']}, but the summary {found['held']}"


def levels_of(path):
    """(time, live) of a timeline CSV."""
    with open(path, newline="", encoding="utf-8") as file:
        return [(int(row["time_ns"]), int(row["live_bytes"])) for row in csv.DictReader(file)]


def differences(shown, other):
    """How far `other` is above `shown`, least and most: event by event, and at each instant (its end, and its crest)."""
    by_event = [b - a for (_, a), (_, b) in zip(shown, other)]
    by_time, a, b = [], 0, 0
    at = collections.defaultdict(lambda: ([], []))
    for side, events in enumerate((shown, other)):
        for time, level in events:
            at[time][side].append(level)
    for time in sorted(at):
        tops = max([a, *at[time][0]]), max([b, *at[time][1]])
        a, b = (at[time][0] or [a])[-1], (at[time][1] or [b])[-1]
        by_time += [b - a, tops[1] - tops[0]]
    return [[min(0, *values), max(0, *values)] for values in (by_event, by_time)]


def overlay_problem(found, runs):
    """Each run's peak, and its differences to each other where both have the same events."""
    if [(r["label"], r["measured"], r["peak"]) for r in found["runs"]] != [r[:3] for r in runs]:
        return f"the runs are {[(r['label'], r['measured'], r['peak']) for r in found['runs']]}"
    for shown, (*_, levels) in zip(found["runs"], runs):
        for k, (label, *_, other) in enumerate(runs):
            by_event, by_time = differences(levels, other)
            if shown["differences"]["time"][k] != by_time:
                return f"{label} − {shown['label']} in time: {shown['differences']['time'][k]}, not {by_time}"
            if len(levels) == len(other) and shown["differences"]["events"][k] != by_event:
                return f"{label} − {shown['label']} by event: {shown['differences']['events'][k]}, not {by_event}"
    return ""


def with_a_blip(path):
    """The CSV with one tensor more, which comes and goes at its last instant: only a crest can show it."""
    rows = list(csv.DictReader(path.read_text("utf-8").splitlines()))
    live, size = int(rows[-1]["live_bytes"]), 1 << 40
    for event, level in (("alloc", live + size), ("free", live)):
        rows.append({**rows[-1], "seq": len(rows), "event": event, "tensor": "blip", "bytes": size, "live_bytes": level,
                     "id": 999_999_999})
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def overlay_cases(program, chromium, folder, tally):
    """A run over more sequences (the same events), over another policy, over itself as a measured file but for a blip."""
    scenario, runs = ROOT / "scenarios/gpt2-small-every-3.yaml", []
    for label, measured in {"gpt2-small-every-3": False, "batch.size=9": False, "policy=none": False, "t.csv": True}.items():
        words = ["--set", label] if "=" in label else []
        path = folder / (f"{len(runs)}.csv" if not measured else "0.csv")
        if measured:
            with_a_blip(path)
        else:
            run([program, "run", scenario, *words, "--timeline", path], cwd=folder)
        levels = levels_of(path)
        runs.append((label, measured, max(level for _, level in levels), levels))
    (folder / "0.csv").rename(folder / "t.csv")
    words = [w for label, *_ in runs[1:] for w in ("--report-with", label)]
    code, _, err = run([program, "run", scenario, "--report", folder / "page.html", *words], cwd=folder)
    tally.case("an overlay is written", err.decode() if code else "")
    if code or not chromium:
        return
    found = in_browser(chromium, (folder / "page.html").read_text("utf-8"), folder)
    tally.case("an overlay in a browser", browser_problem(found, runs[0][2]) or overlay_problem(found, runs))


def sweep_problem(found, rows, axes):
    """The page's front, cells and hover against the CSV's rows."""
    if found["errors"] or found["faults"]:
        return "\n".join(found["errors"] + found["faults"])
    settings = [[row[axis] for axis in axes] for row in rows]
    peaks = {tuple(s): int(r["peak_bytes"]) for s, r in zip(settings, rows)}
    front = sorted(tuple(s) for s, r in zip(settings, rows) if r["pareto"] == "1")
    if sorted(map(tuple, found["front"])) != front or found["rows"] != len(front):
        return f"the front is {found['front']}, in {found['rows']} rows; not {front}"
    ascending = [peaks[tuple(s)] for s in found["front"]]
    if ascending != sorted(ascending):
        return "the front does not ascend"
    least = {}
    for s, peak in peaks.items():
        least[s[:2]] = min(peak, least.get(s[:2], peak))
    if {(a, b): value for a, b, value in found["cells"]} != least:
        return f"the heat map is {found['cells']}, not {least}"
    # Points may lie on each other; the one that is described has the same peak.
    for at, picked, text in found["hover"]:
        if peaks[tuple(at)] != peaks[tuple(picked)] or not all(value in text for value in picked):
            return f"over {at} the page describes {picked}: {text}"
    return "" if len(found["hover"]) == len(rows) else "not every point is drawn"


def sweep_cases(program, chromium, folder, tally):
    """The page of a sweep of three axes, of a file with a name that could do harm."""
    study = folder / 'say "a" <b>&amp;.yaml'
    study.write_text("model: {family: chain, layers: 12, layer_activation: 100 MB, boundary: 10 MB, forward_time: 1 ms}\n"
                     "policy: {kind: interval, interval: 1}\nbudget: 700 MB\n"
                     "sweep: {policy.interval: 1..6, policy.schedule: [per_segment, up_front], model.layers: [12, 24]}\n")
    page = folder / "sweep.html"
    code, out, err = run([program, "sweep", study, "--report", page])
    tally.case("a sweep's page is written", err.decode() if code else "")
    if code or not chromium:
        return
    axes, rows = ["policy.interval", "policy.schedule", "model.layers"], list(csv.DictReader(out.decode().splitlines()))
    found = in_browser(chromium, page.read_text("utf-8"), folder, SWEEP_PROBE)
    tally.case("a sweep's page in a browser", sweep_problem(found, rows, axes))


def main():
    program, tally = pathlib.Path(sys.argv[1]).resolve(), Tally()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if not chromium:
        print("chromium is not installed: the pages are not opened")
    with tempfile.TemporaryDirectory() as home:
        folder = pathlib.Path(home)
        (folder / "nasty.csv").write_bytes(b'id,inputs,layer_activation_bytes,output_bytes\n"' +
                                           NASTY.replace('"', '""').encode() + b'",,100,10\nb,,50,5\n')
        (folder / "nasty.yaml").write_text(
            f"name: {json.dumps(NASTY)}\nmodel: {{family: graph, file: nasty.csv}}\n", "utf-8")
        (folder / "nothing.yaml").write_text("model: {family: chain, layers: 1}\n")
        cases = [(name, ROOT / f"scenarios/{name}.yaml") for name in SCENARIOS]
        cases += [(name, folder / f"{name}.yaml") for name in ("nasty", "nothing")]
        for name, scenario in cases:
            code, out, err = run([program, "run", scenario, "--json", "--top", "200", "--report", folder / "page.html"])
            if code:
                tally.case(name, err.decode())
                continue
            page, peak = (folder / "page.html").read_text("utf-8"), json.loads(out)["peak_bytes"]
            tally.case(f"{name}: the file", file_problem(page, peak))
            if chromium:
                tally.case(f"{name}: in a browser", browser_problem(in_browser(chromium, page, folder), peak))
        overlay_cases(program, chromium, folder, tally)
        sweep_cases(program, chromium, folder, tally)
    tally.finish()


if __name__ == "__main__":
    main()
