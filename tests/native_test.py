#!/usr/bin/env python3
"""Does the native program, told a model's shape and the simulator's plan, do what is simulated?

For each case: tidemark run --plan-out, tidemark-native with that plan, tidemark compare of the scenario with what was
measured. The native program's own counters must agree: its arena's high-water mark with the peak, its FLOPs with the
summary's, and the heap must not be asked for memory in the steps.

Usage: native_test.py TIDEMARK TIDEMARK-NATIVE
"""
import json
import pathlib
import sys
import tempfile

from harness import Tally, run

MLP = ["mlp", "--layers", "4", "--rows", "256", "--width", "32", "--hidden", "64"]
DECODER = ["transformer", "--layers", "6", "--hidden", "32", "--heads", "4", "--ffn-hidden", "128", "--vocab", "64",
           "--positions", "32", "--batch", "4", "--sequence", "32", "--steps", "2"]
# name, scenario, --set values, what the native program is told
CASES = (
    ("mlp", "mlp-reference", (), MLP),
    ("mlp, segments", "mlp-reference-every-2", (), MLP),
    ("mlp, kept pre-activations", "mlp-reference-every-2", ("model.save_pre_activation=true",),
     [*MLP, "--save-pre-activation"]),
    ("decoder", "transformer-reference-none", (), DECODER),
    ("decoder, segments", "transformer-reference-every-2", (), DECODER),
    ("decoder, a segment that does not divide", "transformer-reference-every-2", ("policy.interval=4",), DECODER),
    ("decoder, full", "transformer-reference-every-2", ("policy=full",), DECODER),
    ("decoder, block", "transformer-reference-every-2", ("policy={kind: block, layers: 3}",), DECODER),
    ("decoder, attention", "transformer-reference-every-2", ("policy={kind: selective, recompute: [core_attn]}",),
     DECODER),
    ("decoder, kept products", "transformer-reference-every-2", ("policy={kind: selective, keep: [matmul]}",), DECODER),
)


class Bench:
    def __init__(self, tidemark, native, folder):
        self.tidemark, self.native, self.folder = tidemark, native, folder

    def measure(self, scenario, sets, words):
        """Runs both; (summary, native's counters, the measured timeline)."""
        settings = [word for value in sets for word in ("--set", value)]
        plan, timeline = self.folder / "plan.yaml", self.folder / "measured.csv"
        code, out, err = run([self.tidemark, "run", f"scenarios/{scenario}.yaml", *settings, "--json",
                              "--plan-out", plan])
        if code != 0:
            raise RuntimeError(err.decode())
        code, told, err = run([self.native, *words, "--plan", plan, "--timeline", timeline,
                               "--ops", self.folder / "ops.csv"])
        if code != 0:
            raise RuntimeError(err.decode())
        counters = dict(line.split(" ", 1) for line in told.decode().splitlines())
        return json.loads(out), counters, timeline

    def compare(self, scenario, sets, timeline, *more):
        settings = [word for value in sets for word in ("--set-a", value)]
        code, out, err = run([self.tidemark, "compare", f"scenarios/{scenario}.yaml", timeline, *settings, *more])
        return code, (out + err).decode()

    def problem(self, scenario, sets, words):
        summary, counters, timeline = self.measure(scenario, sets, words)
        code, said = self.compare(scenario, sets, timeline)
        if code != 0:
            return f"compare: exit {code}\n{said}"
        for name, expected in (("high_water_bytes", summary["peak_bytes"]), ("events", summary["events"]),
                               ("flops", sum(step["flops"]["total"] for step in summary["steps"])), ("heap_calls", 0)):
            if counters[name] != str(expected):
                return f"{name} is {counters[name]}, expected {expected}"
        return ""

    def swapped_frees(self, scenario, words):
        """The comparison must see two frees in the other order."""
        _, _, timeline = self.measure(scenario, (), [*words, "--swap-frees"])
        code, said = self.compare(scenario, (), timeline)
        if code != 1 or "another tensor" not in said:
            return f"exit {code}; expected the first difference\n{said}"
        return ""

    def times(self, scenario, words):
        """A measured timeline has times beside the simulated ones."""
        _, _, timeline = self.measure(scenario, (), [*words, "--repeat", "3"])
        code, said = self.compare(scenario, (), timeline, "--json")
        times = json.loads(said)["b"]["time_ns"]
        if code != 0 or not 0 < times["backward"] < times["all"]:
            return f"exit {code}, times {times}"
        return ""


def refused(native, words, message):
    code, _, err = run([native, *words])
    return "" if code == 2 and message in err.decode() else f"exit {code}: {err.decode()}; expected {message}"


def main():
    tidemark, native = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(tidemark, native, pathlib.Path(folder))
        for name, scenario, sets, words in CASES:
            tally.case(name, bench.problem(scenario, sets, words))
        tally.case("mlp, frees swapped", bench.swapped_frees("mlp-reference-every-2", MLP))
        tally.case("decoder, frees swapped", bench.swapped_frees("transformer-reference-every-2", DECODER))
        tally.case("times", bench.times("transformer-reference-every-2", DECODER))
    for words, message in (
            (["mpl"], "unknown model 'mpl'; expected mlp or transformer"),
            (["mlp", "--layer", "3"], "unknown option '--layer'"),
            (["mlp", "--layers"], "'--layers' needs a value"),
            (["mlp", "--layers", "3x"], "'--layers' must be a whole number from 1 to 1000000, not '3x'"),
            (["mlp", "--layers", "3", "--layers", "4"], "'--layers' stands twice"),
            (["mlp", "3"], "expected an option, not '3'"),
            (["mlp", "--hold-out", "3"], "'--hold-out' takes no value"),
            (["mlp", "--plan", "missing.yaml"], "missing.yaml: error: cannot be read"),
            (["transformer", "--optimizer", "sgd"], "unknown optimizer 'sgd'"),
            (["transformer", "--heads", "5"], "'--hidden' must be a multiple of '--heads'"),
            (["transformer", "--sequence", "65"], "'--sequence' is above '--positions'")):
        tally.case(" ".join(words), refused(native, words, message))
    tally.finish()


if __name__ == "__main__":
    main()
