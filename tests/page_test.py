#!/usr/bin/env python3
"""Does the page of `run --report` open without errors, show the right peak, and does its table follow the cursor?

What can be seen in the file alone is checked everywhere; what needs a browser, where chromium is installed.

Usage: page_test.py PROGRAM
"""
import base64
import html
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
PROBE = r"""
<script>
(async () => {
  const frame = () => new Promise(done => setTimeout(done, 60));
  while (!tidemark.ready && tidemark.errors.length === 0) await frame();
  const out = {errors: tidemark.errors, faults: []};
  const expect = (is, what) => { if (!is) out.faults.push(what); };
  try {
    const {model, tide, table, lives} = tidemark;
    const sum = row => row.slice(1).reduce((a, b) => a + b, 0);
    const level = (low, high) => Math.max(0, ...tide.rows().filter(r => r[0] >= low && r[0] <= high).map(sum));
    const highest = () => model.count ? model.live.reduce((a, b) => Math.max(a, b), 0) : 0;
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
      const [start, end] = model.extent(axis);
      expect(level(start, end) === out.peak, `${axis}: the whole picture's top is ${level(start, end)}`);
      const xs = tide.rows().map(r => r[0]);
      expect(xs.every((x, i) => i === 0 || xs[i - 1] < x), `${axis}: two rows at one place`);
      for (const part of [0.5, 0.03, 0.001]) {
        const x = model.count ? model.x(model.peak, axis) : 0, half = part * (end - start) / 2;
        tide.setWindow(x - half, x + half);
        expect(level(...tide.window) === out.peak, `${axis}: zoomed to ${part} the top is ${level(...tide.window)}`);
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
    const key = (name, more = {}) => document.dispatchEvent(new KeyboardEvent('keydown', {key: name, bubbles: true, ...more}));
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
    document.getElementById('theme').click();
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


def data_of(page):
    """The data a page carries."""
    found = re.search(r'<script type="text/plain" id="data" data-encoding="(\w+)">(.*?)</script>', page, re.DOTALL)
    text = found[2]
    if found[1] == "deflate":
        text = zlib.decompress(base64.b64decode(text, validate=True))
    return json.loads(text)


def file_problem(page, peak):
    """What can be said against the file without a browser."""
    data = data_of(page)
    live = highest = 0
    for what in data["events"]["what"]:
        live += (1 if what > 0 else -1) * data["storages"]["bytes"][abs(what) - 1]
        highest = max(highest, live)
    if highest != peak or data["summary"]["peak_bytes"] != peak:
        return f"the events' peak is {highest}, the summary's {data['summary']['peak_bytes']}, the run's {peak}"
    if len(data["holders"]["count"]) != len(data["storages"]["bytes"]):
        return "not every storage has holders"
    if re.search(r'(src|href)\s*=|@import|url\(', page[:page.index("<script")]):
        return "the page asks for another file"
    return "" if page.count("<script") == page.count("</script") == 3 else "a name opens or closes a script"


def in_browser(chromium, page, folder):
    """What the probe finds in the page."""
    path = folder / "probe.html"
    head, tail = page.rsplit("</body>", 1)
    path.write_text(head + PROBE + tail, "utf-8")
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
    tally.finish()


if __name__ == "__main__":
    main()
