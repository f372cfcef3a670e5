#!/usr/bin/env python3
"""How long do PyTorch's ops take on a device you have? Writes the table that `tidemark calibrate --from` fits.

    tools/capture/op_times.py --out ops.csv                                 # the CPU, float32, one thread
    tools/capture/op_times.py --device cuda --dtype bfloat16 --out ops.csv  # CUDA events

Forward and backward are timed apart. The ops take turns, so that a slow spell of the machine falls on all alike; a
time is the low tenth of the runs, and the median stands beside it. Needs PyTorch alone.
"""
import argparse
import csv
import sys
import time

COLUMNS = ("kind", "direction", "shape", "dtype", "device", "flops", "bytes_moved", "time_ns", "median_ns", "held_out")

# m, n, k of a product; batch x heads, rows, head dimension of a batched one; rows, columns of the rest. The second list
# is held out: a profile is not fitted to it.
PRODUCTS = ([(16, 16, 16), (64, 64, 64), (128, 128, 128), (256, 256, 256), (512, 512, 512), (256, 64, 32), (256, 32, 64),
             (1024, 64, 128), (64, 256, 256), (8, 64, 64), (32, 512, 512), (256, 1024, 256)],
            [(96, 96, 96), (192, 192, 192), (320, 320, 320), (192, 48, 96), (100, 300, 50), (768, 64, 96), (20, 200, 200)])
BATCHED = ([(4, 16, 16), (8, 64, 32), (16, 64, 64), (8, 128, 32), (8, 128, 64), (4, 256, 64)],
           [(12, 48, 32), (8, 96, 64), (6, 192, 48)])
ROWS = ([(8, 32), (32, 64), (64, 128), (128, 256), (512, 256), (1024, 512), (2048, 1024)],
        [(24, 48), (100, 100), (256, 192), (700, 640)])
LARGE = 8  # on a GPU every extent of the larger shapes is this many times as long


class Candidate:
    """One op: `forward` gives its output; backward is the gradient of that with respect to `leaves`."""

    def __init__(self, kind, shape, held_out, forward, leaves, flops, moved):
        self.kind, self.shape, self.held_out = kind, shape, held_out
        self.forward, self.leaves = forward, leaves
        self.flops, self.moved = flops, moved  # each (forward, backward)
        self.times = {"forward": [], "backward": []}


def candidates(torch, device, dtype, scale):
    functional = torch.nn.functional
    item = torch.empty((), dtype=dtype).element_size()

    def fresh(*shape):
        return torch.randn(*shape, device=device, dtype=dtype, requires_grad=True)

    def label(names, extents):
        return " ".join(f"{name}={extent}" for name, extent in zip(names, extents))

    for held_out, shapes in enumerate(PRODUCTS):
        for m, n, k in shapes:
            m, n, k = (extent * scale if extent > 8 else extent for extent in (m, n, k))
            x, w, wt, bias = fresh(m, k), fresh(k, n), fresh(n, k), fresh(n)
            one, elements = 2 * m * n * k, m * k + k * n + m * n
            shape = label("mnk", (m, n, k))
            moved = (item * elements, item * (elements + m * k + k * n))
            yield Candidate("matmul", shape, held_out, lambda x=x, w=w: x @ w, (x, w), (one, 2 * one), moved)
            yield Candidate("addmm", shape, held_out, lambda b=bias, x=x, w=w: torch.addmm(b, x, w), (bias, x, w),
                            (one, 2 * one), tuple(part + item * n for part in moved))
            yield Candidate("linear", shape, held_out, lambda x=x, w=wt, b=bias: functional.linear(x, w, b), (x, wt, bias),
                            (one, 2 * one), tuple(part + item * n for part in moved))
    for held_out, shapes in enumerate(BATCHED):
        for batch, rows, d in shapes:
            rows *= scale
            q, k, scores = fresh(batch, rows, d), fresh(batch, rows, d), fresh(batch, rows, rows)
            shape = label(("batch", "rows", "d"), (batch, rows, d))
            flops = 2 * batch * rows * rows * d
            square, thin = item * batch * rows * rows, item * batch * rows * d
            yield Candidate("bmm", shape + " scores", held_out, lambda q=q, k=k: torch.bmm(q, k.transpose(1, 2)), (q, k),
                            (flops, 2 * flops), (square + 2 * thin, square + 4 * thin))
            yield Candidate("bmm", shape, held_out, lambda s=scores, k=k: torch.bmm(s, k), (scores, k),
                            (flops, 2 * flops), (square + 2 * thin, 2 * square + 3 * thin))
    for held_out, shapes in enumerate(ROWS):
        for rows, columns in shapes:
            rows *= scale
            x, y, weight, bias = fresh(rows, columns), fresh(rows, columns), fresh(columns), fresh(columns)
            labels = torch.arange(rows, device=device) % columns
            shape, size = label(("rows", "columns"), (rows, columns)), item * rows * columns
            elementwise = {
                "add": (lambda x=x, b=bias: x + b, (x, bias), 2, 1),
                "mul": (lambda x=x, y=y: x * y, (x, y), 3, 5),
                "relu": (lambda x=x: torch.relu(x), (x,), 2, 3),
                "gelu": (lambda x=x: functional.gelu(x), (x,), 2, 3),
                "silu": (lambda x=x: functional.silu(x), (x,), 2, 3),
                "scale": (lambda x=x: x * 0.125, (x,), 2, 2),
                "softmax": (lambda x=x: torch.softmax(x, -1), (x,), 2, 3),
                "layer_norm": (lambda x=x, w=weight, b=bias: functional.layer_norm(x, (x.shape[-1],), w, b),
                               (x, weight, bias), 2, 3),
                "embedding": (lambda i=labels, x=x: functional.embedding(i, x), (x,), 2, 2),
                "contiguous": (lambda x=x: x.t().contiguous(), (x,), 2, 2),
                "cross_entropy": (lambda x=x, i=labels: functional.cross_entropy(x.float(), i), (x,), 1, 2),
            }
            for kind, (forward, leaves, reads, writes) in elementwise.items():
                yield Candidate(kind, shape, held_out, forward, leaves, (0, 0), (reads * size, writes * size))


class Clock:
    """Nanoseconds of one call: CUDA events on a GPU, else the processor's clock."""

    def __init__(self, torch, device):
        self.torch, self.on_gpu = torch, device.startswith("cuda")

    def time(self, call):
        if self.on_gpu:
            start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            result = call()
            end.record()
            end.synchronize()
            return result, start.elapsed_time(end) * 1e6
        start = time.perf_counter_ns()
        result = call()
        return result, time.perf_counter_ns() - start


def measure(torch, clock, everything, rounds):
    for number in range(rounds + 2):  # two to warm up
        for candidate in everything:
            out, forward = clock.time(candidate.forward)
            gradient = torch.ones_like(out)
            _, backward = clock.time(lambda: torch.autograd.grad(out, candidate.leaves, gradient))
            if number >= 2:
                candidate.times["forward"].append(forward)
                candidate.times["backward"].append(backward)
        if sys.stderr.isatty():
            print(f"\rmeasuring: round {number + 1} of {rounds + 2} ", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print(file=sys.stderr)


def rows_of(candidate, dtype, device):
    for at, direction in enumerate(("forward", "backward")):
        times = sorted(candidate.times[direction])
        yield (candidate.kind, direction, candidate.shape, dtype, device, candidate.flops[at], candidate.moved[at],
               max(1, round(times[len(times) // 10])), max(1, round(times[len(times) // 2])), candidate.held_out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=1, help="of the CPU")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    if options.rounds < 1 or options.threads < 1:
        parser.error("--rounds and --threads must be positive")
    try:
        import torch  # pylint: disable=import-outside-toplevel
    except ImportError:
        sys.exit("error: PyTorch is not installed (pip install torch)")
    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    on_gpu = options.device.startswith("cuda")
    if on_gpu and not torch.cuda.is_available():
        sys.exit("error: this PyTorch sees no CUDA device")
    name = torch.cuda.get_device_name(options.device) if on_gpu else f"PyTorch {torch.__version__} on a CPU"
    everything = list(candidates(torch, options.device, getattr(torch, options.dtype), LARGE if on_gpu else 1))
    measure(torch, Clock(torch, options.device), everything, options.rounds)
    with open(options.out, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        for candidate in everything:
            table.writerows(rows_of(candidate, options.dtype, name))


if __name__ == "__main__":
    main()
