#!/usr/bin/env python3
"""Does the program answer at the command line as the transcripts in tests/cli/ say?

A transcript is prose with commands in it, run one after another by bash in one empty folder beside a copy of
scenarios/. A command starts with "$ "; lines of input may follow, each after "> ". Then stands what it prints, stdout
and stderr together (no line of it may start with "$ "), then its exit code:

    $ tidemark formula optimal_segment 36
    6
    # exit 0

Usage: cli_test.py PROGRAM [--bless] [FILE...]    --bless writes what the program says now into the transcripts
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from harness import ENVIRONMENT, ROOT, Tally, difference

TRANSCRIPTS = ROOT / "tests/cli"
EXIT = re.compile(r"# exit \d+")
SECONDS = 60


class Shell:
    """A folder in which the commands of one transcript run."""

    def __init__(self, program):
        self.home = tempfile.TemporaryDirectory()
        home = pathlib.Path(self.home.name)
        (home / "bin").mkdir()
        (home / "bin/tidemark").symlink_to(program)
        self.folder = home / "work"
        self.folder.mkdir()
        if (ROOT / "scenarios").is_dir():
            shutil.copytree(ROOT / "scenarios", self.folder / "scenarios")
        self.environment = {**os.environ, **ENVIRONMENT, "HOME": str(home), "PATH": f"{home}/bin:{os.environ['PATH']}"}

    def answer(self, command):
        """What stands below the command in a transcript."""
        done = subprocess.run(["bash", "-c", command], cwd=self.folder, env=self.environment, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=SECONDS)
        said = done.stdout.decode(errors="backslashreplace")
        if said and not said.endswith("\n"):
            said += "\n# no newline\n"
        return f"{said}# exit {done.returncode}\n"


def replay(program, text):
    """The transcript as the program writes it now, and the number of its commands."""
    lines = text.splitlines()
    written, commands, at = [], 0, 0
    shell = Shell(program)
    while at < len(lines):
        written.append(lines[at] + "\n")
        if not lines[at].startswith("$ "):
            at += 1
            continue
        command = [lines[at][2:]]
        at += 1
        while at < len(lines) and lines[at].startswith("> "):
            written.append(lines[at] + "\n")
            command.append(lines[at][2:])
            at += 1
        while at < len(lines) and not EXIT.fullmatch(lines[at]):
            if lines[at].startswith("$ "):
                break  # a new transcript, which has no answers yet
            at += 1
        else:
            at += 1
        written.append(shell.answer("\n".join(command)))
        commands += 1
    return "".join(written), commands


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    words = sys.argv[2:]
    blessing = "--bless" in words
    files = [pathlib.Path(word).resolve() for word in words if word != "--bless"] or sorted(TRANSCRIPTS.glob("*.txt"))
    tally = Tally()
    for path in files:
        text = path.read_text(encoding="utf-8")
        written, commands = replay(program, text)
        if blessing:
            path.write_text(written, encoding="utf-8")
            print(f"blessed cli/{path.name}: {commands} commands")
            continue
        problem = difference(text.encode(), written.encode(), f"cli/{path.name}")
        tally.case(f"cli {path.stem}", problem or ("" if commands else "no command in it"))
    if not blessing:
        tally.finish()


if __name__ == "__main__":
    main()
