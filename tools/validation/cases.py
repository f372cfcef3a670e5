"""What a row of a published table becomes: a scenario to run, the figure of it that was measured, and a bound."""
import csv
import dataclasses
import pathlib
import statistics

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CONFIGS = ROOT / "scenarios/configs"


@dataclasses.dataclass
class Case:
    """One published figure. `figure` takes a Result and gives ours, in bytes."""
    name: str
    measured: float
    scenario: dict
    figure: object
    timeline: bool = False  # the figure needs every event
    note: str = ""          # what of the published figure is not in the tensors, and why
    bounded: bool = True    # False: printed, but no bound holds for it; `note` says why
    excess: float = 0       # published beside `measured`, and named: no error of ours


@dataclasses.dataclass
class Result:
    """What the program gave for a case."""
    summary: dict
    events: list  # (step, bytes with sign, category) of the timeline, where the case asked for it

    @property
    def peak(self):
        return self.summary["peak_bytes"]

    @property
    def allocated_peak(self):
        return self.summary["allocated_peak_bytes"]

    def blocks(self):
        """What torch.cuda counts, blocks of 512 bytes, by step: (peak, level at its end)."""
        peaks, ends, now = {}, {}, 0
        for step, size, _ in self.events:
            rounded = (abs(size) + 511) // 512 * 512
            now += rounded if size > 0 else -rounded
            peaks[step] = max(peaks.get(step, 0), now)
            ends[step] = now
        return [(peaks[step], ends[step]) for step in sorted(peaks)]

    def most_of(self, category):
        """The most bytes of a category that are alive at once."""
        most = now = 0
        for _, size, kind in self.events:
            now += size if kind == category else 0
            most = max(most, now)
        return most


@dataclasses.dataclass
class Line:
    """A case and what came of it."""
    case: Case
    ours: float
    phase: str
    reason: str = ""  # why the peak is what it is, as the summary says

    @property
    def error(self):
        return self.ours - self.case.measured

    @property
    def relative(self):
        return self.error / self.case.measured


@dataclasses.dataclass
class Table:
    """A published table. `check` takes its lines and gives what breaks the bound, a sentence each."""
    name: str
    title: str
    bound: str
    file: str
    cases: object  # rows -> [Case]
    check: object
    unit: str = "B"
    on_request: bool = False  # takes minutes: only with --table
    reasons: bool = False  # every row is printed, with its reason


def reason(summary):
    """What the policy does at the peak, in words: the summary's warnings, or its figures of `recompute_at_peak`."""
    if summary["warnings"]:
        return summary["warnings"][0]
    there, mib = summary["recompute_at_peak"], 2.0**20
    if there["layers_recomputed"] == 0:
        held = summary["peak_by_category"]["activation"]
        return f"nothing is recomputed: {held / mib:,.0f} MiB of activations are kept"
    return (f"{there['layers_rebuilt']} of {there['layers_recomputed']} recomputed layers are rebuilt there, in "
            f"{there['rebuilt_bytes'] / mib:,.0f} MiB, and {there['kept_bytes'] / mib:,.0f} MiB stay to recompute from")


def read(folder, name):
    """Rows of tests/data/NAME; lines that start with # say where they come from."""
    path = pathlib.Path(folder) / name
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    if not rows:
        raise ValueError(f"{path} has no rows")
    return rows


# ---- bounds

def exact(lines):
    return [f"{line.case.name}: {line.error:+,.0f} B" for line in lines if line.error != 0 and line.case.bounded]


def median_within(share):
    def check(lines):
        errors = [abs(line.relative) for line in lines if line.case.bounded]
        median = statistics.median(errors) if errors else 0
        return [f"median error {median:.2%} is above {share:.2%}"] if median > share else []
    return check


def each_within(share):
    def check(lines):
        return [f"{line.case.name}: {line.relative:+.2%}" for line in lines
                if abs(line.relative) > share and line.case.bounded]
    return check


def all_of(*checks):
    return lambda lines: [problem for check in checks for problem in check(lines)]
