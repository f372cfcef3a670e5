#!/usr/bin/env python3
"""How many test cases passed and failed? Reads the JUnit file of ctest, prints "N passed, N failed".

One ctest test runs many cases: a doctest binary prints its own count, and so do the scripts in tests/. A test without a
count is one case, and one that ctest calls failed, or did not run, has at least one failed case.
"""
import re
import sys
import xml.etree.ElementTree as xml

DOCTEST = re.compile(r"test cases:\s*\d+ \|\s*(\d+) passed \|\s*(\d+) failed")
SCRIPT = re.compile(r"^(\d+) passed, (\d+) failed$", re.MULTILINE)


def count(test):
    """The passed and failed cases of one <testcase>."""
    output = re.sub(r"\x1b\[[0-9;]*m", "", test.findtext("system-out") or "")
    found = DOCTEST.findall(output) or SCRIPT.findall(output)
    good = test.get("status") == "run"
    if not found:
        return (1, 0) if good else (0, 1)
    passed, failed = map(int, found[-1])
    return passed, failed if good else max(failed, 1)


def main():
    counts = [count(test) for test in xml.parse(sys.argv[1]).getroot().iter("testcase")]
    print(f"{sum(p for p, _ in counts)} passed, {sum(f for _, f in counts)} failed")


if __name__ == "__main__":
    main()
