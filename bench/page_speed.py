#!/usr/bin/env python3
"""How long does a page of about a million events take to write and to draw, and how smooth is zooming?

Real time, in headless Chromium; the page reports to a server in this program. Processor time of the writing is that of
`run --report` less that of `run`.

Usage: page_speed.py PROGRAM [SCENARIO.yaml [KEY=VALUE ...]]
"""
import http.server
import json
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEFAULT = [ROOT / "scenarios/gpt2-small-every-3.yaml", "batch.accumulate=186"]

# Zooms in on the peak and out again, and moves the cursor over the whole; each is timed up to the next frame.
PROBE = """
<script>
(async () => {
  const frame = () => new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)));
  while (!tidemark.ready && tidemark.errors.length === 0) await new Promise(done => setTimeout(done, 5));
  await frame();
  const out = {errors: tidemark.errors, drawn: performance.now(), zoom: [], cursor: []};
  const {tide} = tidemark, timed = async (list, act) => {
    const start = performance.now();
    act();
    await frame();
    list.push(performance.now() - start);
  };
  for (let i = 0; i < 12; ++i) await timed(out.zoom, () => tide.zoom(0.5));
  for (let i = 0; i < 12; ++i) await timed(out.zoom, () => tide.zoom(2));
  tide.all();
  for (let i = 0; i < 20; ++i) await timed(out.cursor, () => tide.setCursor(Math.floor(tide.model.count * i / 20)));
  new Image().src = 'http://127.0.0.1:PORT/?' + encodeURIComponent(JSON.stringify(out));
})();
</script>
</body>"""


def used(command):
    """Processor seconds of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def drawn(chromium, page, folder):
    """What the probe measures."""
    answer, arrived = {}, threading.Event()

    class Listener(http.server.BaseHTTPRequestHandler):
        def do_GET(self):  # noqa: N802  (the library's name)
            answer.update(json.loads(urllib.parse.unquote(self.path.split("?", 1)[1])))
            self.send_response(204)
            self.end_headers()
            arrived.set()

        def log_message(self, *words):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Listener) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        head, tail = page.read_text("utf-8").rsplit("</body>", 1)
        probe = folder / "probe.html"
        probe.write_text(head + PROBE.replace("PORT", str(server.server_port)) + tail, "utf-8")
        browser = subprocess.Popen([chromium, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,1200",
                                    "--disable-background-networking", f"--user-data-dir={folder}/profile",
                                    "--remote-debugging-port=0", probe.as_uri()],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            if not arrived.wait(120):
                sys.exit("page_speed.py: no answer from the browser in 120 s")
        finally:
            browser.terminate()
            browser.wait()
            server.shutdown()
    return answer


def main():
    program, scenario, *settings = sys.argv[1:] if len(sys.argv) > 2 else [sys.argv[1], *DEFAULT]
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or sys.exit("chromium is not installed")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        folder = pathlib.Path(home)
        run = [program, "run", scenario, *(word for one in settings for word in ("--set", one))]
        events = json.loads(subprocess.run([*run, "--json"], check=True, capture_output=True).stdout)["events"]
        plain = min(used([*run, "--json"]) for _ in range(3))
        report = min(used([*run, "--json", "--report", folder / "page.html"]) for _ in range(3))
        size = (folder / "page.html").stat().st_size
        print(f"{events:,} events: written in {report - plain:.2f} s of processor time, {size / 1e6:.1f} MB")
        found = drawn(chromium, folder / "page.html", folder)
        if found["errors"]:
            sys.exit("\n".join(found["errors"]))
        print(f"drawn {found['drawn'] / 1e3:.2f} s after the page was asked for")
        for name, what in {"zoom": "a zoom", "cursor": "the cursor moved"}.items():
            print(f"{what}: {statistics.median(found[name]):.0f} ms in the middle, {max(found[name]):.0f} ms at most")


if __name__ == "__main__":
    main()
