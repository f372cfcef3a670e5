#!/usr/bin/env python3
"""Is the summary made for where it goes: as wide as the terminal, coloured there alone, the same words everywhere?

Usage: terminal_test.py PROGRAM
"""
import fcntl
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import termios

from harness import ROOT, Tally, run

SCENARIO = ROOT / "scenarios/gpt2-small-every-3.yaml"
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def on_terminal(command, columns, environment):
    """What a command prints on a terminal of that width."""
    mine, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    clean = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")}
    child = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=its, stderr=its,
                             env={**clean, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **environment})
    os.close(its)
    out = b""
    while True:
        try:
            piece = os.read(mine, 65536)
        except OSError:  # Linux's way to say that the other side is closed
            break
        if not piece:
            break
        out += piece
    os.close(mine)
    child.wait()
    return out.decode("utf-8").replace("\r\n", "\n")


def main():
    program, tally = pathlib.Path(sys.argv[1]).resolve(), Tally()
    command = [program, "run", SCENARIO]
    coloured = on_terminal(command, 100, {})
    plain = ESCAPE.sub("", coloured)
    tally.case("coloured on a terminal", "" if ESCAPE.search(coloured) else "no colour")
    tally.case("only colours", "" if "\x1b" not in plain else "another escape")
    for name, environment in {"NO_COLOR": {"NO_COLOR": "1"}, "a dumb terminal": {"TERM": "dumb"}}.items():
        shown = on_terminal(command, 100, environment)
        tally.case(f"{name}: the same words without colour", "" if shown == plain else "it differs from the coloured one")
    _, piped, _ = run(command, environment={"NO_COLOR": "", "TERM": "xterm-256color"})
    tally.case("in a pipe: the same words without colour", "" if piped.decode() == plain else "it differs from the terminal's")
    for columns in (40, 60, 80, 132, 200):
        lines = ESCAPE.sub("", on_terminal(command, columns, {})).splitlines()
        wide = [line for line in lines if len(line) > max(columns, 60)]
        chart = [line for line in lines if re.match(r"^[ \d.KMGTiB]*[┤└]", line)]
        tally.case(f"{columns} columns", f"too wide: {wide[:2]}" if wide else "no chart" if not chart else
                   "" if max(map(len, chart)) <= columns else "the chart is wider than the terminal")
    tally.finish()


if __name__ == "__main__":
    main()
