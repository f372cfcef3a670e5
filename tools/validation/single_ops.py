"""Single ops and whole steps whose published figure is a total: Liger-Kernel's benchmarks, BERT-large on a V100."""
import itertools

from cases import CONFIGS, Case, Table, each_within, median_within

MIB = 1 << 20


def half(*shape):
    return {"shape": list(shape), "dtype": "bfloat16"}


def program(layer, **parts):
    return {"family": "program", **parts, "layers": [{"name": "block", "ops": layer}]}


def liger_model(row):
    value = int(row["value"])
    if row["kernel"] == "cross_entropy":  # B = 8, T = 2048, fp32
        return program([{"op": "cross_entropy", "in": ["x", "target"], "out": ["loss"]}], loss="loss",
                       parameters={"x": [16384, value]}, inputs={"target": {"shape": [16384], "dtype": "int64"}})
    if row["kernel"] == "layer_norm":  # M = 4096 rows, fp32, backward from a given gradient
        return program([{"op": "layer_norm", "in": ["x", "w", "b"], "out": ["y"]}], loss="y", loss_gradient="dy",
                       parameters={"x": [4096, value], "w": [value], "b": [value]}, inputs={"dy": [4096, value]})
    return gated_mlp((8 if row["kernel"] == "geglu" else 4) * value, row)


def gated_mlp(rows, row):
    """LlamaMLP in bf16 with gelu_pytorch_tanh (geglu, 8 sequences) or silu (swiglu, 4). Backward starts from a given
    gradient and keeps the graph: what its nodes saved stays to the end, as if variables held it."""
    hidden, inner = 4096, 11008
    kept = ["gate", "act", "up", "product", "y"]
    layer = [{"op": "linear", "in": ["x", "gate_w"], "out": ["gate"]},
             {"op": "gelu" if row["kernel"] == "geglu" else "silu", "in": ["gate"], "out": ["act"]},
             {"op": "linear", "in": ["x", "up_w"], "out": ["up"]},
             {"op": "mul", "in": ["act", "up"], "out": ["product"]},
             {"op": "linear", "in": ["product", "down_w"], "out": ["y"]}]
    parameters = {"x": half(rows, hidden), "gate_w": half(inner, hidden), "up_w": half(inner, hidden),
                  "down_w": half(hidden, inner)}
    if row["mode"] == "forward":
        return program([*layer, {"op": "sum", "in": ["y"], "out": ["loss"]}], loss="loss", parameters=parameters)
    return program([*layer, {"release": kept}], loss="y", loss_gradient="dy", logits=kept, parameters=parameters,
                   inputs={"dy": half(rows, hidden)})


def liger_cases(rows):
    for row in rows:
        device = {"A100-80GB": "a100-80gb", "H100-80GB": "h100-80gb"}[row["gpu"]]
        scenario = {"model": liger_model(row), "device": device}
        if row["mode"] == "full":
            scenario["batch"] = {"accumulate": 2}  # the gradients of the pass before are there
            scenario["loop"] = {"logits_held": True}  # retain_graph
            figure = lambda result: result.peak / MIB
        else:
            scenario["steps"] = 2
            figure = lambda result: result.summary["phase_peaks"]["forward"] / MIB
        yield Case(f"{row['kernel']}, {row['mode']}, {row['x']} = {row['value']}, {row['gpu']}", float(row["MiB"]),
                   scenario, figure)


def bert_cases(rows):
    """nvidia-smi counts what the allocator has reserved, and the context."""
    for row in rows:
        scenario = {"model": {"family": "transformer", "config": str(CONFIGS / "bert-large.json"), "attention": "eager",
                              "head": "classification"}, "device": "v100-32gb",
                    "profile": {"preset": "pytorch-cuda", "runtime": "pytorch-1.13", "pytorch": "1.10"},
                    "batch": {"size": int(row["micro_batch"]), "sequence": 512, "accumulate": int(row["accumulate"])},
                    # transformers' own AdamW, in 2022, and gradients that zero_grad keeps, as it did up to PyTorch 1.13
                    "optimizer": {"kind": "adamw", "multi_tensor": False, "zero_grad": "zero"},
                    "allocator": "cuda_caching"}
        if row["checkpointing"] == "yes":
            scenario["policy"] = {"kind": "full", "checkpointing": "reentrant"}
        if row["precision"] == "fp16":
            scenario["dtype"] = {"autocast": "float16"}
        yield Case(f"batch {row['micro_batch']} x {row['accumulate']}, {row['precision']}, checkpointing "
                   f"{row['checkpointing']}", float(row["nvidia_smi"]), scenario,
                   lambda result: result.summary["reserved_peak_bytes"] / MIB + 1343)


ACCELERATE = {"family": "transformer", "model_type": "llama", "layers": 24, "hidden": 2048, "heads": 16,
              "ffn_hidden": 8192, "vocab": 32000, "attention": "flash"}
BUDGET = {"family": "transformer", "model_type": "llama", "layers": 32, "hidden": 256, "heads": 4, "ffn_hidden": 256,
          "vocab": 256, "attention": "flash"}
# The partitioner recomputes what it drops in one block at the start of backward at the tightest budget, and each part
# where it is needed when it keeps more.
BUDGETS = {"0.05": {"kind": "full", "schedule": "up_front"}, "0.15": {"kind": "full"},
           "0.25": {"kind": "selective", "keep": ["attention"]},
           "0.35": {"kind": "selective", "keep": ["attention", "down_proj", "gate_proj"]}}


def order_cases(rows):
    for row in rows:
        accelerate = row["sweep"] == "accelerate"
        scenario = {"model": ACCELERATE if accelerate else BUDGET,
                    "batch": {"size": 8 if accelerate else 2, "sequence": 2048 if accelerate else 1024},
                    "dtype": {"parameters": "bfloat16", "compute": "bfloat16"},
                    "policy": row["setting"] if accelerate else BUDGETS[row["setting"]]}
        yield Case(f"{row['sweep']}: {row['setting']}", float(row["measured"]), scenario,
                   lambda result: result.peak / MIB, bounded=False, note="only the order counts")


def same_order(lines):
    problems = []
    for sweep, members in itertools.groupby(lines, lambda line: line.case.name.split(":")[0]):
        members = list(members)
        theirs = [line.case.name for line in sorted(members, key=lambda line: line.case.measured)]
        ours = [line.case.name for line in sorted(members, key=lambda line: line.ours)]
        if theirs != ours:
            problems.append(f"{sweep}: {', '.join(ours)} and not {', '.join(theirs)}")
    return problems


TABLES = [
    Table("liger", "Liger-Kernel's benchmarks: peaks of PyTorch's own ops", "median 1 %", "liger_ops.csv", liger_cases,
          median_within(0.01), unit="MiB"),
    Table("bert-large", "BERT-large on one V100, as nvidia-smi says", "3 %, each row", "hf_bert_large.csv", bert_cases,
          each_within(0.03), unit="MiB"),
    Table("orders", "Recompute settings of one job", "the order of the peaks", "recompute_orders.csv", order_cases,
          same_order, unit="MiB", reasons=True),
]
