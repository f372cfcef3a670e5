"""Captures small models, simulates policies, really runs them under a recorder: the event streams are equal."""
import csv
import ctypes
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SKIPPED = 77


def skip(why):
    print("skipped: " + why)
    sys.exit(SKIPPED)


try:
    import torch
except ImportError:
    skip("python3-torch is not installed (tools/setup installs it)")
sys.path[:0] = [os.path.join(ROOT, "tools", "capture"), HERE]
import torch.nn.functional as F  # noqa: E402

import models  # noqa: E402
import tidemark_capture  # noqa: E402


def build_recorder(folder):
    library = os.path.join(folder, "recorder.so")
    made = subprocess.run(["g++", "-std=c++17", "-O1", "-fPIC", "-shared", "-o", library,
                           os.path.join(HERE, "recorder.cpp"), "-lc10"], capture_output=True, text=True)
    if made.returncode != 0:
        skip("the recorder does not compile (libtorch-dev is missing?): " + made.stderr.split("\n")[0])
    recorder = ctypes.CDLL(library)
    for name in ("recorder_stop", "recorder_block", "recorder_bytes"):
        getattr(recorder, name).restype = ctypes.c_int64
        getattr(recorder, name).argtypes = [] if name == "recorder_stop" else [ctypes.c_int64]
    recorder.recorder_install()
    return recorder


def step(model, inputs, loss_fn):
    loss = loss_fn(model(*inputs))
    loss.backward()
    del loss


def recorded(recorder, model, inputs, loss_fn):
    """One step as "+bytes" and "-number of the allocation", after a first step has made what is made once."""
    step(model, inputs, loss_fn)
    for tensor in list(model.parameters()) + list(inputs):
        if tensor.requires_grad:
            tensor.grad = None
    recorder.recorder_start()
    step(model, inputs, loss_fn)
    count = recorder.recorder_stop()
    numbers, out = {}, []
    for i in range(count):
        block, size = recorder.recorder_block(i), recorder.recorder_bytes(i)
        if size > 0:
            numbers[block] = len(numbers)
            out.append("+%d" % size)
        else:
            out.append("-%s" % numbers.get(block, "?"))
    return out


def simulated(program, scenario, folder):
    path, timeline = os.path.join(folder, "scenario.yaml"), os.path.join(folder, "timeline.csv")
    with open(path, "w", encoding="utf-8") as file:
        file.write(scenario)
    made = subprocess.run([program, "run", path, "--timeline", timeline], capture_output=True, text=True)
    if made.returncode != 0:
        raise RuntimeError(made.stderr)
    numbers, out = {}, []
    with open(timeline, encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["phase"] == "initial":
                continue
            if row["event"] == "alloc":
                numbers[row["id"]] = len(numbers)
                out.append("+" + row["bytes"])
            else:
                out.append("-%s" % numbers.get(row["id"], "?"))
    return out


def flow(value):
    if isinstance(value, dict):
        return "{%s}" % ", ".join("%s: %s" % (key, flow(item)) for key, item in value.items())
    return str(value).lower() if isinstance(value, bool) else str(value)


def policies():
    yield "none", {"kind": "none"}
    for kind in ("reentrant", "nonreentrant"):
        for interval in (1, 2):
            for rng in (True, False):
                yield "%s, interval %d%s" % (kind, interval, "" if rng else ", no generator state"), {
                    "kind": "interval", "interval": interval, "checkpointing": {"kind": kind, "preserve_rng": rng}}
    yield "sequential, 2 segments", {
        "kind": "sequential", "segments": 2, "checkpointing": {"kind": "reentrant", "preserve_rng": True}}
    if models.set_checkpoint_early_stop is not None:
        yield "nonreentrant, interval 2, to the end", {
            "kind": "interval", "interval": 2,
            "checkpointing": {"kind": "nonreentrant", "preserve_rng": False, "early_stop": False}}


def cases():
    torch.manual_seed(0)
    target = torch.randn(7, 24)
    for name, activation in (("relu", torch.relu), ("sigmoid", torch.sigmoid), ("leaky_relu", F.leaky_relu)):
        yield "mlp " + name, models.Mlp(activation=activation), (torch.randn(7, 24, requires_grad=True),), \
            lambda out: F.mse_loss(out, target)
    for name, batch, options in (("gpt", 2, {}), ("gpt, batch 1", 1, {}), ("gpt, no dropout, untied", 2, {"dropout": 0.0, "tied": False})):
        ids, labels = torch.randint(0, 101, (batch, 16)), torch.randint(0, 101, (batch, 16))
        yield name, models.Gpt(**options), (ids,), \
            lambda out, labels=labels: F.cross_entropy(out.view(-1, 101), labels.view(-1))
    ids, labels = torch.randint(0, 53, (2, 12)), torch.randint(0, 53, (2, 12))
    yield "llama", models.Llama(), (ids,), lambda out: F.cross_entropy(out.view(-1, 53), labels.view(-1))
    images, classes = torch.randn(2, 12, 20), torch.randint(0, 7, (2,))
    yield "mixer", models.Mixer(), (images.requires_grad_(),), lambda out: F.cross_entropy(out, classes)
    pictures, kinds = torch.randn(3, 3, 8, 8), torch.randint(0, 5, (3,))
    yield "vit", models.Vit(), (pictures,), lambda out: F.cross_entropy(out, kinds)
    words, wanted = torch.randint(0, 29, (2, 10)), torch.randint(0, 29, (2, 10))
    yield "t5", models.T5(), (words,), lambda out: F.cross_entropy(out.view(-1, 29), wanted.view(-1))
    rows, goal = torch.randn(6, 12, requires_grad=True), torch.randn(6, 12)
    yield "views", models.Views(), (rows,), lambda out: F.mse_loss(out, goal)


def difference(got, wanted):
    for i, (a, b) in enumerate(zip(got + ["(end)"], wanted + ["(end)"])):
        if a != b:
            low = max(0, i - 8)
            return "event %d of %d: simulated %s > %s, recorded %s > %s" % (
                i, len(wanted), " ".join(got[low:i]), " ".join(got[i:i + 6]), " ".join(wanted[low:i]),
                " ".join(wanted[i:i + 6]))
    return ""


class Diagonal(torch.nn.Module):
    def forward(self, x):
        return (2 * x).diagonal()


def checks_without_a_run():
    """On meta tensors the same program comes out; a view that no rule knows is refused by its name."""
    def text(device):
        ids, labels = (torch.zeros((2, 16), dtype=torch.int64, device=device) for _ in range(2))
        program, _ = tidemark_capture.trace(models.Gpt(tied=False).to(device), (ids,),
                                            lambda out: F.cross_entropy(out.view(-1, 101), labels.view(-1)))
        return tidemark_capture.capture.text_of(program)

    yield "meta tensors", text("meta") == text("cpu")
    try:
        tidemark_capture.trace(Diagonal(), (torch.ones(3, 3, requires_grad=True),), torch.sum)
        yield "a view without a rule", False
    except NotImplementedError as error:
        yield "a view without a rule", str(error) == "aten.diagonal works in place or makes a view, and has no rule"


def main():
    program = sys.argv[1]
    only = sys.argv[2] if len(sys.argv) > 2 else ""
    torch.set_num_threads(1)
    version = "2.6" if int(torch.__version__.split(".")[0]) >= 2 else "1.13"
    failed = passed = 0
    for name, good in checks_without_a_run():
        failed, passed = failed + (not good), passed + good
        if not good:
            print("FAILED " + name)
    with tempfile.TemporaryDirectory() as folder:
        recorder = build_recorder(folder)
        for name, model, inputs, loss_fn in cases():
            tidemark_capture.dump(model, inputs, loss_fn, os.path.join(folder, "program.json"))
            for title, policy in policies():
                if only not in name + ", " + title:
                    continue
                if name == "t5" and policy["kind"] == "sequential":
                    continue  # its blocks take two arguments
                model.policy = policy
                wanted = recorded(recorder, model, inputs, loss_fn)
                model.policy = {"kind": "none"}
                scenario = "profile: pytorch-%s-cpu\nmodel: {family: program, file: program.json}\npolicy: %s\n" % (
                    version, flow(policy))
                got = simulated(program, scenario, folder)
                apart = difference(got, wanted)
                if apart:
                    failed += 1
                    print("FAILED %s, %s: %s" % (name, title, apart))
                else:
                    passed += 1
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
