"""Times of iterations on groups of A100s: published, and simulated from a share of the datasheet's rates.

No kernel reaches the datasheet's rates. Each table takes one share for all its rows, from the one row that its note
names: that row agrees by construction, under no bound, and says nothing.
"""
from cases import Case, Table, median_within


def device(share):
    """An A100 with that share of its rates for matrix products and of its memory's bandwidth; the link's as it is."""
    return {"name": "a100", "capacity": "80 GiB",
            "flops": {"float16": f"{312 * share:.3f} TFLOP/s", "float32": f"{19.5 * share:.4f} TFLOP/s"},
            "memory_bandwidth": f"{2039 * share:.2f} GB/s", "link_bandwidth": "300 GB/s"}


def gpt(row, vocab=51200, sequence=2048):
    return {"family": "transformer", "model_type": "gpt2", "layers": int(row["layers"]), "hidden": int(row["hidden"]),
            "heads": int(row["heads"]), "vocab": vocab, "max_positions": sequence, "dropout": 0.1,
            "tied_embeddings": True, "activation": "gelu", "attention": "eager"}


def job(row, policy, share, tokens=False, data=1, micro_batches=1, micro_batch=1, sequence=2048):
    """One iteration as Megatron-LM runs it. Stages exchange at 25 GB/s, the nodes' network (200 Gb/s a GPU)."""
    tensor, stages, chunks = int(row["tensor"]), int(row["pipeline"]), int(row.get("virtual", 1))
    scenario = {"profile": "megatron", "model": gpt(row, sequence=sequence),
                "batch": {"size": micro_batch, "sequence": sequence},
                "dtype": {"parameters": "float16", "compute": "float16", "main_gradients": "float32",
                          "master": "float32"},
                "optimizer": {"kind": "adam", "fused": True}, "device": device(share), "policy": policy,
                "parallel": {"data": data}}
    if tensor > 1:
        scenario["parallel"].update(tensor=tensor, sequence=tokens)
    if stages == 1:
        scenario["batch"]["accumulate"] = micro_batches
        return scenario
    layers, count = int(row["layers"]), stages * chunks
    scenario["parallel"].update(
        pipeline=stages, virtual=chunks, schedule="interleaved" if chunks > 1 else "1f1b", micro_batches=micro_batches,
        layers_per_chunk=[layers // count + (1 if chunk < layers % count else 0) for chunk in range(count)],
        transfer_bandwidth="25 GB/s", steady=True, stage=0)
    return scenario


def iteration(result):
    return result.summary["time_ns"]["step"] / 1e6


# ---- Korthikanti et al. 2022

LAYER_SHARE = 0.712


def recompute_cases(rows):
    for row in rows:
        layer, first = row["what"] == "layer", row is rows[0]
        policy = {"kind": "selective", "recompute": ["core_attn"]} if row["policy"] == "selective" else row["policy"]
        scenario = job(row, policy, LAYER_SHARE, tokens=row["tokens"] == "true",
                       micro_batches=int(row["micro_batches"]), micro_batch=int(row["micro_batch"]))

        def milliseconds(result, layer=layer, count=int(row["layers"])):
            times = result.summary["time_ns"]
            return (times["step"] - times["optimizer"]) / count / 1e6 if layer else iteration(result)

        name = (f"{row['layers']} layers of {row['hidden']}, {row['what']}, recompute {row['policy']}, "
                f"tokens shared {row['tokens']}")
        yield Case(name, float(row["ms"]), scenario, milliseconds, bounded=not first,
                   note=f"{LAYER_SHARE} of the datasheet's rates are from this row" if first else "")


# ---- Narayanan et al. 2021

PTD_SHARE = 0.669


def ptd_cases(rows):
    """Published are TFLOP/s a GPU by the source's equation 3; here, the same FLOPs over the simulated time."""
    for row in rows:
        layers, hidden, batch, gpus = (int(row[key]) for key in ("layers", "hidden", "batch", "gpus"))
        flops = 96 * batch * 2048 * layers * hidden**2 * (1 + 2048 / (6 * hidden) + 51200 / (16 * layers * hidden))
        data = gpus // (int(row["tensor"]) * int(row["pipeline"]))
        first = row is rows[0]
        name = f"table {row['table']}: {row['params_B']}B on {gpus} GPUs"
        yield Case(name, float(row["tflops"]),
                   job(row, "full", PTD_SHARE, data=data, micro_batches=batch // data),
                   lambda result, flops=flops, gpus=gpus: flops / gpus / result.summary["time_ns"]["step"] / 1e3,
                   bounded=not first, note=f"{PTD_SHARE} of the datasheet's rates are from this row" if first else "")


# ---- vTrain

VTRAIN_SHARE = 0.522


def vtrain_cases(rows):
    for number, row in enumerate(rows):
        data = int(row["data"])
        micro = int(row["micro_batch"])
        name = " ".join(f"{key} {row[key]}" for key in ("hidden", "layers", "batch", "micro_batch", "tensor", "data", "pipeline"))
        yield Case(name, float(row["ms"]),
                   job(row, "full", VTRAIN_SHARE, data=data, micro_batches=int(row["batch"]) // data // micro,
                       micro_batch=micro, sequence=int(row["sequence"])), iteration, bounded=number > 0,
                   note=f"{VTRAIN_SHARE} of the datasheet's rates are from this row" if number == 0 else "")


def reported(_):
    return []


TABLES = [
    Table("recompute-times", "Korthikanti et al. 2022, tables 4 and 5: a layer, and iterations of 22B to 1T", "median 5 %",
          "korthikanti_times.csv", recompute_cases, median_within(0.05), unit="ms", on_request=True),
    Table("ptd-rates", "Narayanan et al. 2021, tables 1 and 2: TFLOP/s a GPU, 1.7B to 530B", "median 5 %",
          "megatron_ptdp.csv", ptd_cases, median_within(0.05), unit="TFLOP/s", on_request=True),
    Table("vtrain-times", "vTrain's iterations on 1 to 64 nodes", "none, reported", "vtrain_times.csv", vtrain_cases,
          reported, unit="ms", on_request=True),
]
