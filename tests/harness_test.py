#!/usr/bin/env python3
"""Can the test scripts fail? Runs them on a small tree, with a stand-in for the program that misbehaves on demand."""
import os
import pathlib
import shutil
import sys
import tempfile

from harness import ROOT, Tally, run

# Prints the scenario back. MOOD says how it misbehaves.
PROGRAM = """#!/usr/bin/env python3
import os, sys, uuid
mood = os.environ.get("MOOD", "")
if mood == "crash":
    sys.exit("error: it fell over")
if sys.argv[1:] == ["twice", "2"]:
    print("5" if mood == "wrong" else "4")
    sys.exit(1 if mood == "exit" else 0)
if sys.argv[1] == "run":
    print(open(sys.argv[2]).read().strip() + ("?" if mood == "wrong" else ""))
    for option in ("--timeline", "--ops"):
        if option in sys.argv:
            with open(sys.argv[sys.argv.index(option) + 1], "w") as file:
                file.write("seq,bytes\\n" + "1,2\\n" * (100000 if mood == "large" else 1))
                if mood == "random":
                    file.write(str(uuid.uuid4()))
                if mood == "threads" and len(os.sched_getaffinity(0)) > 1:
                    file.write("more than one processor")
"""
TRANSCRIPT = "Twice two.\n\n$ tidemark twice 2\n4\n# exit 0\n\n$ cat <<'END'\n> one\n> END\none\n# exit 0\n"


def plant(root):
    (root / "tools").mkdir()
    shutil.copytree(ROOT / "tests", root / "tests", ignore=lambda folder, names: [
        name for name in names if not (name.endswith(".py") and pathlib.Path(folder) == ROOT / "tests")])
    (root / "scenarios").mkdir()
    (root / "scenarios/a.yaml").write_text("name: a\n", encoding="utf-8")
    (root / "tests/cli").mkdir()
    (root / "tests/cli/twice.txt").write_text(TRANSCRIPT, encoding="utf-8")
    program = root / "program"
    program.write_text(PROGRAM, encoding="utf-8")
    program.chmod(0o755)


def script(root, name, *words, mood=""):
    """The exit code and the output of tests/NAME_test.py in the small tree."""
    code, out, err = run([sys.executable, root / f"tests/{name}_test.py", root / "program", *words], cwd=root,
                         environment={"MOOD": mood})
    return code, (out + err).decode()


def cases(root):
    """Pairs (name, problem)."""
    def expect(name, answer, code, *said):
        wrong = answer[0] != code or any(words not in answer[1] for words in said)
        return name, f"expected exit {code} and {said}, got exit {answer[0]}:\n{answer[1]}" if wrong else ""

    yield expect("a scenario without golden results", script(root, "golden"), 1, "no golden results", "0 passed, 1 failed")
    yield expect("bless", script(root, "golden", "--bless", "a"), 0, "blessed a: summary.txt, summary.json, timeline.csv")
    yield expect("bless an unknown scenario", script(root, "golden", "--bless", "b"), 1, "no scenarios/b.yaml")
    yield expect("the same bytes", script(root, "golden"), 0, "1 passed, 0 failed")
    yield expect("other bytes", script(root, "golden", mood="wrong"), 1, "-name: a", "+name: a?", "0 passed, 1 failed")
    yield expect("another timeline", script(root, "golden", mood="large"), 1, "gives no timeline.csv any more")
    yield expect("a crash", script(root, "golden", mood="crash"), 1, "it fell over", "0 passed, 1 failed")

    yield expect("bless a large timeline", script(root, "golden", "--bless", mood="large"), 0, "timeline.digest")
    yield expect("the same large timeline", script(root, "golden", mood="large"), 0, "1 passed, 0 failed")
    file = root / "tests/golden/a/timeline.digest"
    file.write_text(file.read_text().replace("lines 100001", "lines 100002"), encoding="utf-8")
    yield expect("another large timeline", script(root, "golden", mood="large"), 1, "+lines 100001")
    (root / "tests/golden/b").mkdir()
    yield expect("golden results of nothing", script(root, "golden", mood="large"), 1, "has no scenarios/b.yaml")

    yield expect("the transcript", script(root, "cli"), 0, "1 passed, 0 failed")
    yield expect("another answer", script(root, "cli", mood="wrong"), 1, "-4", "+5", "0 passed, 1 failed")
    yield expect("another exit code", script(root, "cli", mood="exit"), 1, "-# exit 0", "+# exit 1")
    (root / "tests/cli/twice.txt").write_text("$ tidemark twice 2\n$ tidemark twice 2\n5\n", encoding="utf-8")
    yield expect("bless a transcript", script(root, "cli", "--bless"), 0, "twice.txt: 2 commands")
    blessed = (root / "tests/cli/twice.txt").read_text()
    yield "a blessed transcript", "" if blessed == "$ tidemark twice 2\n4\n# exit 0\n" * 2 else blessed
    (root / "tests/cli/prose.txt").write_text("Only prose.\n", encoding="utf-8")
    yield expect("a transcript without commands", script(root, "cli"), 1, "no command in it", "1 passed, 1 failed")

    yield expect("the same each time", script(root, "determinism"), 0, "1 passed, 0 failed")
    yield expect("not the same each time", script(root, "determinism", mood="random"), 1, "timeline.csv, one thread and")
    if len(os.sched_getaffinity(0)) > 1:
        yield expect("threads change it", script(root, "determinism", mood="threads"), 1, "more than one processor")
    (root / "scenarios/a.yaml").unlink()
    yield expect("nothing to test", script(root, "determinism"), 1, "no case was found", "0 passed, 1 failed")


# name, ctest's JUnit, the tally
TALLIES = (
    ("doctest counts its cases", '<testcase status="run"><system-out>[doctest] test cases:  12 |  11 passed | 1 failed'
     '</system-out></testcase>', "11 passed, 1 failed"),
    ("a script counts its cases", '<testcase status="run"><system-out>x\n3 passed, 0 failed\n</system-out></testcase>',
     "3 passed, 0 failed"),
    ("a crash after the count", '<testcase status="fail"><system-out>3 passed, 0 failed\n</system-out></testcase>',
     "3 passed, 1 failed"),
    ("no count", '<testcase status="run"/><testcase status="fail"/><testcase status="notrun"/>', "1 passed, 2 failed"),
)


def main():
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        plant(root)
        for name, problem in cases(root):
            tally.case(name, problem)
        for name, tests, expected in TALLIES:
            (root / "tests.xml").write_text(f"<testsuite>{tests}</testsuite>", encoding="utf-8")
            _, out, err = run([sys.executable, ROOT / "tools/tally.py", root / "tests.xml"])
            tally.case(name, "" if out.decode() == f"{expected}\n" else (out + err).decode())
    tally.finish()


if __name__ == "__main__":
    main()
