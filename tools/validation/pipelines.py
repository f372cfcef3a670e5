"""Pipelines whose throughput and memory were measured, from the times of their passes."""
from cases import Case, Table, each_within

GIB = 1 << 30


def name(row):
    return f"table {row['table']}: {row['model']}, {row['micro_batches']} micro-batches, {row['schedule']}"


def chunks(row):
    return 3 if row["schedule"] == "interleaved" else 1


def nanos(row, key):
    return int(row[key]) * 1000 // chunks(row)


STAGES_PER_NODE = 8
BANDWIDTH = 2039e9  # of an A100-80GB SXM, B/s: NVIDIA's data sheet


def output_bytes(row):
    """What a stage sends of a micro-batch: 16 bits a number."""
    return 2 * int(row["size"]) * 1024 * int(row["hidden"])


def within_node(rows):
    """Nanoseconds a byte, from stage to stage of one node: the mean of table 4's settings that run on one."""
    times = {(row["micro_batches"], row["transfer"]): 1000 * float(row["transfer"]) / output_bytes(row)
             for row in rows if row["table"] == "4" and int(row["stages"]) == STAGES_PER_NODE}
    return sum(times.values()) / len(times)


def transfers(row, of_a_byte):
    """The published time is a mean: the authors' program sends round trips along all links, one after the other, and
    divides. Links within a node take as long a byte as where there is one node; the others take what is left."""
    stages, mean = int(row["stages"]), 1000 * float(row["transfer"])
    if stages == STAGES_PER_NODE:
        return {"transfer_time": f"{mean:.0f} ns"}
    within = of_a_byte * output_bytes(row)
    between = stages // STAGES_PER_NODE - 1
    return {"transfer_time": f"{within:.0f} ns", "stages_per_node": STAGES_PER_NODE,
            "node_transfer_time": f"{((stages - 1) * mean - (stages - 1 - between) * within) / between:.0f} ns"}


def optimizer_nanos(row):
    """Of a stage between the first and the last: Adam reads an fp32 gradient, weight and two moments a parameter,
    writes the last three and a 16-bit copy, at the device's bandwidth."""
    layers = (int(row["layers"]) + 2) // int(row["stages"])
    return layers * 12 * int(row["hidden"]) ** 2 * (4 * 4 + 3 * 4 + 2) * 1e9 / BANDWIDTH


def passes(row, of_a_byte):
    """A chain of one layer a chunk, with the given times. What a layer saves is table 1's, a token."""
    stages, hidden, heads = int(row["stages"]), int(row["hidden"]), int(row["heads"])
    weights = nanos(row, "backward_weight")
    return {"model": {"family": "chain", "layers": stages * chunks(row),
                      "layer_activation": f"{34 * hidden + 5 * heads * 1024} B",
                      "weight_activation": f"{32 * hidden} B", "forward_time": f"{nanos(row, 'forward')} ns",
                      "backward_time": f"{nanos(row, 'backward_input') + weights} ns", "weight_time": f"{weights} ns"},
            "parallel": {"pipeline": stages, "virtual": chunks(row), "schedule": row["schedule"],
                         "micro_batches": int(row["micro_batches"]), "blocking_transfers": True,
                         **transfers(row, of_a_byte)}}


def throughput_cases(rows):
    of_a_byte = within_node(rows)
    for row in rows:
        def samples(result, row=row):
            time = max(stage["span_ns"] for stage in result.summary["stages"]) + optimizer_nanos(row)
            return int(row["micro_batches"]) * int(row["size"]) * 1e9 / time / int(row["stages"])

        yield Case(name(row), float(row["samples"]), passes(row, of_a_byte), samples)


def model(row):
    """Op by op, as Megatron-LM runs it, with PyTorch's allocator on each stage."""
    stages, hidden = int(row["stages"]), int(row["hidden"])
    count = chunks(row) * stages
    each = (int(row["layers"]) + 2) // count
    return {"profile": "megatron", "device": "a100-80gb", "allocator": "cuda_caching",
            "model": {"family": "transformer", "model_type": "gpt2", "layers": int(row["layers"]), "hidden": hidden,
                      "heads": int(row["heads"]), "ffn_hidden": 4 * hidden, "vocab": 50304, "max_positions": 1024,
                      "dropout": 0.1, "activation": "gelu", "attention": "eager", "tied_embeddings": False},
            "batch": {"size": int(row["size"]), "sequence": 1024},
            "dtype": {"parameters": "bfloat16", "compute": "bfloat16", "main_gradients": "float32",
                      "master": "float32"},
            "optimizer": {"kind": "adam", "fused": True},
            "parallel": {"pipeline": stages, "virtual": chunks(row), "schedule": row["schedule"],
                         "micro_batches": int(row["micro_batches"]),
                         "layers_per_chunk": [each - 1, *[each] * (count - 2), each - 1]}}


# The stage that peaks, where it is not the second: the first one has a layer less, and is the fullest only with twice
# the micro-batches in flight.
FULLEST = {("1.5B", "zb_1p"): 7, ("1.5B", "zb_2p"): 0, ("14.6B", "zb_2p"): 2}


def memory_cases(rows):
    """Of table 4's rows that differ in the number of micro-batches alone the paper's memory is the same: the first
    stands. Table 12 has fewer of them than a stage could hold."""
    seen = set()
    for row in rows:
        few = row["table"] == "12"
        setting = row["model"], row["schedule"]
        if not few and (row["table"] != "4" or setting in seen):
            continue
        seen.add(setting)
        stage = 1 if few else FULLEST.get(setting, 1)
        scenario = model(row)
        scenario["parallel"]["stage"] = stage

        def reserved(result, stage=stage):
            if result.summary["worst_stage"] != stage:
                raise ValueError(f"the fullest stage is {result.summary['worst_stage']}, not {stage}")
            return result.summary["reserved_peak_bytes"] / GIB

        odd = few and (row["model"], row["micro_batches"], row["schedule"]) == ("14.6B", "4", "1f1b")
        yield Case(name(row), float(row["memory"]), scenario, reserved, bounded=not odd,
                   note="printed as a GB less than zb_2p, which holds as many micro-batches" if odd
                   else f"stage {stage} is the fullest")


TABLES = [
    Table("zero-bubble", "Pipelines of Qi et al. 2024: samples a second and GPU, from the times of the passes",
          "8 %", "zero_bubble_runs.csv", throughput_cases,
          each_within(0.08), "samples/s"),
    Table("zero-bubble-memory", "Pipelines of Qi et al. 2024: what PyTorch's allocator reserves on the fullest stage",
          "5 %", "zero_bubble_runs.csv", memory_cases, each_within(0.05), "GiB"),
]
