"""Runs of Megatron-LM and llm.c, whose tensors are all known."""
from cases import Case, Table, exact

CI_MODEL = {"family": "transformer", "model_type": "gpt2", "layers": 12, "hidden": 512, "heads": 8, "ffn_hidden": 2048,
            "vocab": 50304, "max_positions": 1024, "dropout": 0.1, "tied_embeddings": True, "activation": "gelu"}
CI_PARAMETERS = 64_109_568


def ci_scenario(row):
    return {"profile": "megatron", "model": {**CI_MODEL, "attention": row["attention"]},
            "batch": {"size": 4, "sequence": 1024},
            "dtype": {"parameters": "bfloat16", "compute": "bfloat16", "main_gradients": "float32",
                      "master": "float32"},
            "optimizer": {"kind": "adam", "fused": True}, "policy": row["policy"]}


def megatron_cases(rows):
    """The last step's peak over its end: what lives through the step cancels, so layouts and machines compare."""
    def rise(result):
        peak, end = result.blocks()[-1]
        return peak - end

    for row in rows:
        yield Case(f"{row['cell']}: {row['platforms']}", int(row["max_last"]) - int(row["allocated_last"]), ci_scenario(row),
                   rise, timeline=True, note=row["note"])


def megatron_check(lines):
    """Each cell against its set of published values; and a run of it that is the sum of named tensors."""
    cells = {}
    for line in lines:
        cells.setdefault(line.case.name.split(":")[0], []).append(line)
    problems = []
    for cell, members in cells.items():
        values = [line.case.measured for line in members]
        # What PyTorch's allocator does not split off, 1 MiB at most, differs between two runs of one job.
        spread = max(max(values) - min(values), 1 << 20)
        problems += [f"{line.case.name}: {line.error:+,} B, above the cell's spread" for line in members
                     if abs(line.error) > spread]
        allowed = 1 << 20 if cell == "cudnn" else 0
        if min(abs(line.error) for line in members) != allowed:
            problems.append(f"{cell}: no run is the sum of the named tensors")
    return problems


def megatron_births(rows):
    """Optimizer state born in the first step: 8 B a parameter over the ranks that share it. The published growth of a
    run is that and an excess, which is workspace: it is reported beside, under a bound of its own."""
    for row in rows:
        if row["resumed"] == "1":
            continue  # its first logged step has the states already
        states = int(row["states"])
        identity = 8 * CI_PARAMETERS // states

        def born(result, states=states):
            (first, _), (last, _) = result.blocks()
            return (last - first) // states

        excess = int(row["max_last"]) - int(row["max_first"]) - identity
        yield Case(f"{row['cell']}: {row['platforms']}", identity, ci_scenario(row), born, timeline=True,
                   excess=excess, note=f"published growth {identity + excess:,} B = states + {excess:,} B of workspace")


def births_check(lines):
    """The states to the byte, and what is born beside them in the published runs: in whole MiB and 1 KiB but for the
    unsplit blocks of two runs, so workspaces and no tensor of the model."""
    return exact(lines) + [f"{line.case.name}: an excess of {line.case.excess:,.0f} B" for line in lines
                           if not 31 << 20 <= line.case.excess < (37 << 20) + 2048]


def llmc_cpu_cases(rows):
    for row in rows:
        layers, hidden, heads = int(row["layers"]), int(row["hidden"]), int(row["heads"])
        scenario = {"profile": "llm.c", "optimizer": "adamw",
                    "model": {"family": "transformer", "model_type": "gpt2", "layers": layers, "hidden": hidden,
                              "heads": heads, "ffn_hidden": 4 * hidden, "vocab": int(row["padded_vocab"]),
                              "max_positions": int(row["seq"]), "dropout": 0, "tied_embeddings": True},
                    "batch": {"size": int(row["batch"]), "sequence": int(row["seq"])}}
        name = f"{layers} layers of {hidden}, {row['batch']} x {row['seq']}"
        for what, category in (("parameter", "parameter"), ("activation", "activation"), ("total", None)):
            yield Case(f"{name}: {what}", int(row[what]), scenario,
                       lambda result, category=category: result.peak if category is None
                       else result.summary["peak_by_category"][category])


def llmc_gpu_cases(rows):
    for row in rows:
        layers, hidden, heads = int(row["layers"]), int(row["hidden"]), int(row["heads"])
        scenario = {"profile": "llm.c", "optimizer": "adamw",
                    "model": {"family": "transformer", "model_type": "gpt2", "layers": layers, "hidden": hidden,
                              "heads": heads, "ffn_hidden": 4 * hidden, "vocab": int(row["padded_vocab"]),
                              "max_positions": int(row["seq"]), "dropout": 0, "tied_embeddings": True,
                              "attention": row["attention"]},
                    "dtype": {"parameters": "bfloat16", "compute": "bfloat16", "master": "float32"},
                    "batch": {"size": int(row["batch"]), "sequence": int(row["seq"])}}
        if row["recompute"]:
            scenario["policy"] = {"kind": "selective", "recompute": row["recompute"].split()}
        yield Case(f"{row['model']}, batch {row['batch']}, {row['attention']}, recompute {row['recompute'] or 'nothing'}",
                   int(row["activations_MiB"]), scenario,
                   lambda result: result.summary["peak_by_category"]["activation"] >> 20)


TABLES = [
    Table("megatron-ci", "Megatron-LM's CI model: a step's rise over its end",
          "0 B for a run of each cell (cuDNN: 1 MiB), all within the cell's published spread",
          "megatron_gpt_runs.csv", megatron_cases, megatron_check),
    Table("megatron-births", "Megatron-LM's CI model: optimizer state born in the first step",
          "8 B a parameter over the ranks, to the byte; beside it 31 to 37 MiB of workspace", "megatron_gpt_runs.csv",
          megatron_births, births_check),
    Table("llmc-cpu", "llm.c on a CPU: what it allocates", "0 B", "llmc_cpu.csv", llmc_cpu_cases, exact),
    Table("llmc-gpu", "llm.c on a GPU: activations as it prints them", "0 MiB", "llmc_gpu.csv", llmc_gpu_cases, exact,
          unit="MiB"),
]
