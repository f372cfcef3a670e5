#!/usr/bin/env python3
"""How near do predicted step times come to measured ones, on shapes that calibration never saw?

Usage: predicted_steps.py BUILD_FOLDER PROFILE.yaml [--pairs 20] [--repeat 40]

For each model the native step runs without checkpointing and with segments of K layers, in turn, so that a slow spell
of the machine falls on both. A process gives the least time of its repeats; the measured interval holds nine tenths of
those. The overhead of checkpointing is the ratio of a pair, less 1. Prints spreads, passes and fails nothing: the
machine is shared.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

# layers, rows, width, hidden, K
MODELS = ((16, 60, 48, 180, 4), (6, 100, 64, 256, 2), (9, 40, 80, 320, 3), (24, 30, 40, 160, 6), (5, 120, 96, 384, 1))


def answer(*command):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def quantile(values, part):
    ordered = sorted(values)
    return ordered[round(part * (len(ordered) - 1))]


class Bench:
    def __init__(self, build, profile, folder, repeat):
        self.build, self.profile, self.folder, self.repeat = build, profile, folder, repeat

    def scenario(self, model, segment):
        layers, rows, width, hidden, _ = model
        policy = "none" if segment == 0 else f"{{kind: interval, interval: {segment}}}"
        path = self.folder / f"s{segment}.yaml"
        path.write_text(f"profile: reference\nmodel: {{family: mlp, layers: {layers}, rows: {rows}, width: {width}, "
                        f"hidden: {hidden}}}\npolicy: {policy}\ndevice: {self.profile}\n", encoding="utf-8")
        plan = self.folder / f"plan{segment}.yaml"
        answer(self.build / "tidemark", "run", path, "--plan-out", plan)
        said = json.loads(answer(self.build / "tidemark", "run", path, "--json"))
        return plan, said["time_ns"]["step"]

    def measured(self, model, plan):
        layers, rows, width, hidden, _ = model
        said = answer(self.build / "tidemark-native", "mlp", "--layers", layers, "--rows", rows, "--width", width,
                      "--hidden", hidden, "--plan", plan, "--repeat", self.repeat)
        times = next(line for line in said.splitlines() if line.startswith("run_ns")).split()[1:]
        return min(int(time) for time in times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("profile", type=pathlib.Path)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--repeat", type=int, default=40)
    options = parser.parse_args()
    print(f"{'layers rows width hidden':<24} {'policy':>7} {'predicted':>10} {'measured':>10} {'90 % of minima':>19} "
          f"{'error':>7}   overhead: predicted, measured, 90 %")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options.build.resolve(), options.profile.resolve(), pathlib.Path(folder), options.repeat)
        for model in MODELS:
            segments = (0, model[-1])
            plans = {segment: bench.scenario(model, segment) for segment in segments}
            times = {segment: [] for segment in segments}
            for _ in range(options.pairs):
                for segment in segments:
                    times[segment].append(bench.measured(model, plans[segment][0]))
            for segment in segments:
                predicted, low = plans[segment][1], quantile(times[segment], 0.1)
                line = (f"{' '.join(map(str, model[:4])):<24} {'none' if segment == 0 else f'K={segment}':>7} "
                        f"{predicted / 1e6:>7.3f} ms {low / 1e6:>7.3f} ms {quantile(times[segment], 0.05) / 1e6:>8.3f} to "
                        f"{quantile(times[segment], 0.95) / 1e6:>7.3f} {predicted / low - 1:>+7.1%}")
                if segment:
                    ratios = [with_k / without - 1 for without, with_k in zip(times[0], times[segment])]
                    line += (f"   {predicted / plans[0][1] - 1:.1%}, {quantile(ratios, 0.5):.1%}, "
                             f"{quantile(ratios, 0.05):.1%} to {quantile(ratios, 0.95):.1%}")
                print(line)
                sys.stdout.flush()


if __name__ == "__main__":
    main()
