"""What the test scripts share: counting cases, running the program, showing a difference."""
import difflib
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# No colour, no locale, one width: the same bytes on every machine.
ENVIRONMENT = {"LC_ALL": "C", "NO_COLOR": "1", "COLUMNS": "100", "TERM": "dumb"}


class Tally:
    """Counts the cases of one script; the last line it prints is what tools/tally.py reads."""

    def __init__(self):
        self.passed = self.failed = 0

    def case(self, name, problem):
        """One case; `problem` says what is wrong, and is empty when nothing is."""
        if problem:
            self.failed += 1
            print(f"FAILED {name}\n{problem}\n")
        else:
            self.passed += 1

    def finish(self):
        if self.passed + self.failed == 0:
            self.case("there is something to test", "no case was found")
        print(f"{self.passed} passed, {self.failed} failed")
        sys.exit(1 if self.failed else 0)


def run(command, cwd=ROOT, environment=None, cpus=None):
    """Runs a command without input, on the first `cpus` processors when given: (exit code, stdout, stderr), bytes."""
    def on_fewer_processors():
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cpus])

    done = subprocess.run([str(word) for word in command], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True,
                          env={**os.environ, **ENVIRONMENT, **(environment or {})}, check=False,
                          preexec_fn=on_fewer_processors if cpus else None)
    return done.returncode, done.stdout, done.stderr


def difference(expected, actual, what, limit=40):
    """A unified diff of two byte strings, cut to `limit` lines; empty when they are equal."""
    if expected == actual:
        return ""
    lines = list(difflib.unified_diff(
        expected.decode(errors="backslashreplace").splitlines(), actual.decode(errors="backslashreplace").splitlines(),
        f"{what} (expected)", f"{what} (actual)", lineterm=""))
    if not lines:
        return f"{what}: they differ in how lines end"
    more = [f"... and {len(lines) - limit} lines more"] if len(lines) > limit else []
    return "\n".join(lines[:limit] + more)


def scenarios():
    """Every scenario file, by name."""
    return sorted((ROOT / "scenarios").glob("*.yaml"))
