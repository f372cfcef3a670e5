#!/usr/bin/env python3
"""How near do predicted step times come to measured ones, on shapes that calibration never saw?

Usage: predicted_steps.py BUILD_FOLDER [--rounds 10] [--pairs 2] [--repeat 40] [--profile PROFILE.yaml]

One run does both, in turn, so that a slow spell of the machine falls on both: each round is a quick calibration and, for
each model, `pairs` times the native step without checkpointing and with it. An op's time is the median over the
calibrations. A process gives the least time of its repeats, the last step's alone; the measured interval holds nine
tenths of those minima. The overhead of checkpointing is the ratio of a pair, less 1. With --profile nothing is
calibrated. Prints spreads, passes and fails nothing: the machine is shared.
"""
import argparse
import csv
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

STEPS = 2  # the last one counts: by then all that lasts is there


def mlp(layers, rows, width, hidden, policy):
    return (f"mlp {layers} x {rows} {width} {hidden}", policy,
            f"model: {{family: mlp, layers: {layers}, rows: {rows}, width: {width}, hidden: {hidden}}}\n",
            ("mlp", "--layers", layers, "--rows", rows, "--width", width, "--hidden", hidden))


def decoder(layers, hidden, heads, ffn, vocab, batch, sequence, policy):
    return (f"decoder {layers} x {hidden} {heads} {ffn} {batch} {sequence}", policy,
            f"model: {{family: transformer, model_type: gpt2, attention: eager, dropout: 0, layers: {layers}, hidden: "
            f"{hidden}, heads: {heads}, ffn_hidden: {ffn}, vocab: {vocab}, max_positions: {sequence}}}\n"
            f"batch: {{size: {batch}, sequence: {sequence}}}\noptimizer: adamw\n",
            ("transformer", "--layers", layers, "--hidden", hidden, "--heads", heads, "--ffn-hidden", ffn, "--vocab",
             vocab, "--positions", sequence, "--batch", batch, "--sequence", sequence))


def interval(layers):
    return f"{{kind: interval, interval: {layers}}}"


# Steps are short on purpose: one longer than a scheduler's slice measures the others' work.
MODELS = (
    mlp(16, 60, 48, 180, interval(4)),
    mlp(6, 100, 64, 256, interval(2)),
    mlp(9, 40, 80, 320, interval(3)),
    mlp(24, 30, 40, 160, interval(6)),
    mlp(5, 120, 96, 384, interval(1)),
    decoder(4, 72, 4, 288, 100, 1, 22, interval(2)),
    decoder(6, 40, 4, 160, 80, 2, 14, "full"),
    decoder(3, 104, 4, 416, 120, 1, 30, interval(1)),
    decoder(2, 56, 4, 224, 90, 1, 48, "{kind: selective, recompute: [core_attn]}"),
    decoder(4, 88, 4, 352, 110, 1, 18, "{kind: block, layers: 3}"),
)


def answer(*command):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def quantile(values, part):
    ordered = sorted(values)
    return ordered[round(part * (len(ordered) - 1))]


class Bench:
    def __init__(self, build, folder, repeat):
        self.build, self.folder, self.repeat = build, folder, repeat
        self.tables = []  # of each calibration, the rows

    def calibrate(self):
        path = self.folder / "ops.csv"
        answer(self.build / "tidemark", "calibrate", "--quick", "--ops", path, "--out", self.folder / "quick.yaml",
               "--force")
        with open(path, newline="", encoding="utf-8") as file:
            self.tables.append(list(csv.DictReader(file)))

    def profile(self):
        """Fitted to the medians over all calibrations."""
        rows = self.tables[0]
        for at, row in enumerate(rows):
            for column in ("time_ns", "median_ns"):
                row[column] = round(statistics.median(int(table[at][column]) for table in self.tables))
        path = self.folder / "all.csv"
        with open(path, "w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
            table.writeheader()
            table.writerows(rows)
        print(answer(self.build / "tidemark", "calibrate", "--from", path, "--out", self.folder / "profile.yaml"))
        return self.folder / "profile.yaml"

    def scenario(self, model, policy, profile):
        path = self.folder / "scenario.yaml"
        path.write_text(f"profile: reference\n{model[2]}policy: {policy}\nsteps: {STEPS}\n"
                        + (f"device: {profile}\n" if profile else ""), encoding="utf-8")
        return path

    def plan(self, name, model, policy):
        path = self.folder / f"{name}.plan.yaml"
        answer(self.build / "tidemark", "run", self.scenario(model, policy, None), "--plan-out", path)
        return path

    def predicted(self, model, policy, profile):
        said = answer(self.build / "tidemark", "run", self.scenario(model, policy, profile), "--json")
        return json.loads(said)["steps"][-1]["time_ns"]["step"]

    def products(self, model):
        path = self.folder / "step.csv"
        answer(self.build / "tidemark", "run", self.scenario(model, "none", None), "--ops", path)
        with open(path, newline="", encoding="utf-8") as file:
            return products(csv.DictReader(file), "flops", "bytes_moved")

    def measured(self, model, plan):
        said = answer(self.build / "tidemark-native", *model[3], "--plan", plan, "--steps", STEPS, "--repeat",
                      self.repeat)
        times = next(line for line in said.splitlines() if line.startswith("last_step_ns")).split()[1:]
        return min(int(time) for time in times)


def products(rows, flops, moved):
    """FLOPs and bytes of each op with matrix products: they say its shape."""
    return {(int(row[flops]), int(row[moved])) for row in rows if int(row[flops]) > 0}


def without_costs(profile, path):
    """The single-constant model: the profile's two rates alone."""
    text = profile.read_text(encoding="utf-8")
    path.write_text(text[:text.index("calibration:")], encoding="utf-8")
    return path


def report(bench, profile, times):
    constants = without_costs(profile, bench.folder / "constants.yaml")
    inside = near = 0
    widths = []
    print(f"{'last step of':<26} {'policy':<10} {'predicted':>9} {'measured':>9} {'90 % of minima':>17} {'width':>6} "
          f"{'error':>6} {'one constant':>13}   overhead: predicted, measured, 90 %")
    for number, model in enumerate(MODELS):
        policies = ("none", model[1])
        predicted = [bench.predicted(model, policy, profile) for policy in policies]
        constant = [bench.predicted(model, policy, constants) for policy in policies]
        for at, policy in enumerate(policies):
            minima = times[number][at]
            low, middle, high = (quantile(minima, part) for part in (0.05, 0.5, 0.95))
            inside += low <= predicted[at] <= high
            widths.append(high / low - 1)
            kind = policy if "{" not in policy else policy[len("{kind: "):].split(",")[0]
            line = (f"{model[0]:<26} {kind:<10} {predicted[at] / 1e6:>6.3f} ms {middle / 1e6:>6.3f} ms "
                    f"{low / 1e6:>8.3f} to {high / 1e6:>5.3f} {widths[-1]:>6.1%} {predicted[at] / middle - 1:>+6.1%}"
                    f"{'' if low <= predicted[at] <= high else '!':<1} {constant[at] / middle - 1:>+12.1%}")
            if at == 1:
                ratios = [with_it / without - 1 for without, with_it in zip(*times[number])]
                overhead, seen = predicted[1] / predicted[0] - 1, quantile(ratios, 0.5)
                near += abs(overhead - seen) <= 0.02
                line += f"   {overhead:.1%}, {seen:.1%}, {quantile(ratios, 0.05):.1%} to {quantile(ratios, 0.95):.1%}"
            print(line)
    if bench.tables:
        seen = products(bench.tables[0], "flops", "bytes_moved")
        ours = set.union(*(bench.products(model) for model in MODELS))
        print(f"\nshapes of products in these steps: {len(ours)}, of which calibration measured {len(ours & seen)}")
    print(f"\nstep times inside the interval: {inside} of {2 * len(MODELS)} ('!': outside), its width "
          f"{min(widths):.1%} to {max(widths):.1%}, median {statistics.median(widths):.1%}\n"
          f"overheads within 2 points of the measured median: {near} of {len(MODELS)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=40)
    parser.add_argument("--profile", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options.build.resolve(), pathlib.Path(folder), options.repeat)
        plans = [[bench.plan(f"{number}.{at}", model, policy) for at, policy in enumerate(("none", model[1]))]
                 for number, model in enumerate(MODELS)]
        times = [([], []) for _ in MODELS]  # by model: without, with
        for done in range(options.rounds):
            if not options.profile:
                bench.calibrate()
            for number, model in enumerate(MODELS):
                for _ in range(options.pairs):
                    for at in (0, 1):
                        times[number][at].append(bench.measured(model, plans[number][at]))
            if sys.stderr.isatty():
                print(f"\rround {done + 1} of {options.rounds} ", end="", file=sys.stderr)
        report(bench, options.profile or bench.profile(), times)


if __name__ == "__main__":
    main()
