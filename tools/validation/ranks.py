"""Memory of one of several ranks: Megatron-LM's stages, BLOOM's trial runs, Llama 3 on B200. Nothing is fitted to them."""
from cases import Case, Table, all_of, each_within, exact, median_within
from trained_from_scratch import CI_MODEL

# CUDA's context: bigscience, experiments/tr3m-1B3.md, of a V100; train/tr11-176B-ml/chronicles-prequel.md, of an A100
CONTEXT = {"v100": 1113, "a100": 1573}


def even(layers, stages):
    return [layers // stages + (1 if stage < layers % stages else 0) for stage in range(stages)]


def stage(row):
    """The last stage of a run of the CI model. What the others hold does not matter: they get the layers it leaves."""
    stages, last = int(row["stages"]), int(row["layers"])
    biases = {key: row["biases"] == "1" for key in ("qkv_bias", "projection_bias", "ffn_bias")}
    name = f"{stages} stages, the last of {last} layers{'' if row['biases'] == '1' else ', no biases'}: {row['platform']}"
    return name, {"profile": "megatron", "model": {**CI_MODEL, **biases, "attention": "eager"},
                  "batch": {"size": 4, "sequence": 1024},
                  "dtype": {"parameters": "bfloat16", "compute": "bfloat16", "main_gradients": "float32",
                            "master": "float32"},
                  "optimizer": {"kind": "adam", "fused": True},
                  "parallel": {"pipeline": stages, "layers_per_chunk": [*even(12 - last, stages - 1), last],
                               "micro_batches": int(row["micro_batches"]), "stage": stages - 1}}


def stage_cases(rows):
    def rise(result):
        peak, end = result.blocks()[-1]
        return peak - end

    for row in rows:
        name, scenario = stage(row)
        yield Case(name, int(row["max_last"]) - int(row["allocated_last"]), scenario, rise, timeline=True)


def stage_births(rows):
    """Two moments of 4 B for each parameter of the stage; what a run's peak grows by besides is reported beside."""
    for row in rows:
        name, scenario = stage(row)
        layer = 12 * 512**2 + (13 if row["biases"] == "1" else 4) * 512
        identity = 8 * (int(row["layers"]) * layer + 50304 * 512 + 2 * 512)

        def born(result):
            (first, _), (last, _) = result.blocks()
            return last - first

        excess = int(row["max_last"]) - int(row["max_first"]) - identity
        yield Case(name, identity, scenario, born, timeline=True, excess=excess,
                   note=f"published growth {identity + excess:,} B = states + {excess:,} B")


def deepspeed(model, row, layers, policy, device, capacity):
    """Megatron-DeepSpeed in fp16 with ZeRO 1. Dropouts are its arguments' defaults (megatron/arguments.py)."""
    stages, micro, data = int(row["pipeline"]), int(row["micro_batch"]), int(row["data"])
    return {"profile": "megatron-deepspeed",
            "model": {"family": "transformer", "model_type": "gpt2", "dropout": 0.1, "embedding_norm": True, **model},
            "batch": {"size": micro, "sequence": 2048},
            "dtype": {"parameters": "float16", "compute": "float16", "gradients": "float16", "master": "float32"},
            "optimizer": {"kind": "adam", "fused": True}, "policy": policy,
            "allocator": "cuda_caching",
            "device": {"name": device, "capacity": capacity, "non_torch": f"{CONTEXT[device]} MiB"},
            "parallel": {"tensor": int(row["tensor"]), "pipeline": stages, "layers_per_chunk": even(layers, stages),
                         "micro_batches": max(stages, 2) + 2,  # every further one is like the last but two
                         "data": data, "sharding": "zero1", "stage": 0}}


def taken(device):
    """As nvidia-smi prints it, in MiB; "GB" in these sources is read as a thousand of them."""
    return lambda result: (result.summary["reserved_peak_bytes"] / (1 << 20) + CONTEXT[device]) / 1000


def bloom_cases(rows):
    for row in rows:
        layers = int(row["layers"])
        model = {"layers": layers, "hidden": int(row["hidden"]), "heads": int(row["heads"]), "vocab": int(row["vocab"]),
                 "positions": "alibi", "tied_embeddings": True, "activation": "gelu", "attention": "eager"}
        name = " ".join(f"{key} {row[key]}" for key in ("layers", "hidden", "heads", "data", "tensor", "pipeline", "micro_batch"))
        yield Case(name, float(row["memory_GB"]), deepspeed(model, row, layers, "full", "a100", "80 GiB"), taken("a100"))


def small_bigscience_cases(rows):
    for row in rows:
        model = {"layers": 24, "hidden": 2048, "heads": 16, "vocab": 50304, "max_positions": 2048,
                 "tied_embeddings": True, "activation": "gelu", "attention": "eager"}
        name = " ".join(f"{key} {row[key]}" for key in ("gpu", "data", "tensor", "pipeline", "micro_batch", "policy"))
        yield Case(name, float(row["memory_GB"]),
                   deepspeed(model, row, 24, row["policy"], "v100", f"{row['gpu'][:2]} GiB"), taken("v100"))


def dummy_gradients(hidden, heads, kv_heads, ffn_hidden, tensor):
    """Transformer Engine 2 hands autograd an empty gradient where it added to the main one, one for each shape of a weight,
    in bf16, and keeps it (transformer_engine/pytorch/module/base.py, get_dummy_wgrad). Query, key and value are one
    product, gate and up another."""
    grouped = hidden // heads * kv_heads
    columns = {(hidden + 2 * grouped, hidden), (hidden, hidden), (2 * ffn_hidden, hidden), (hidden, ffn_hidden)}
    return sum(2 * rows * width for rows, width in columns) // tensor


def simumax_cases(rows):
    for row in rows:
        sizes = {key: int(row[key]) for key in ("hidden", "heads", "kv_heads", "ffn_hidden")}
        tensor, context, stages, stage = (int(row[key]) for key in ("tensor", "context", "pipeline", "stage"))
        sequence = int(row["sequence"])
        scenario = {"profile": "megatron",
                    "model": {"family": "transformer", "model_type": "llama", "layers": int(row["layers"]), **sizes,
                              "vocab": 128256, "max_positions": sequence, "attention": "flash", "tied_embeddings": False},
                    "batch": {"size": 1, "sequence": sequence},
                    "dtype": {"parameters": "bfloat16", "compute": "bfloat16", "main_gradients": "float32",
                              "master": "float32"},
                    "optimizer": {"kind": "adam", "fused": True},
                    "parallel": {"data": int(row["data"]), "distributed_optimizer": True}}
        if tensor > 1:
            scenario["parallel"].update(tensor=tensor, sequence=True)
        if context > 1:
            scenario["parallel"]["context"] = context
        if stages > 1:
            scenario["parallel"].update(pipeline=stages, micro_batches=4, stage=stage)
        else:
            scenario["batch"]["accumulate"] = 4
        name = (f"{row['model']} of {row['layers']} layers, {sequence} tokens, tensor {tensor}, context {context}, "
                f"data {row['data']}, stage {stage} of {stages}")
        dummies, long = dummy_gradients(**sizes, tensor=tensor), sequence > 1 << 16
        yield Case(name, float(row["MiB"]), scenario,
                   lambda result, dummies=dummies: (result.peak + dummies) / (1 << 20), bounded=not long,
                   note="logits in fp32, which that cross-entropy does not make" if long
                   else f"of ours {dummies >> 20} MiB are Transformer Engine's empty gradients")


def stage_births_check(lines):
    """The states to the byte. Beside them 1,024 B and whole MiB: what workspaces take, or an unsplit block less."""
    return exact(lines) + [f"{line.case.name}: an excess of {line.case.excess:,.0f} B" for line in lines
                           if (line.case.excess - 1024) % (1 << 20) != 0 or abs(line.case.excess) > 5 << 20]


def reported(_):
    return []


TABLES = [
    Table("megatron-stages", "Megatron-LM's CI model in pipeline stages: the last one's rise over its end", "0 B",
          "megatron_pipeline_runs.csv", stage_cases, exact),
    Table("megatron-stage-births", "Megatron-LM's CI model in pipeline stages: the last one's states of the first step",
          "8 B a parameter, to the byte; beside it 1 KiB and -1 to 4 MiB", "megatron_pipeline_runs.csv", stage_births,
          stage_births_check),
    Table("bloom", "BLOOM's trial runs: memory of the first stage's ranks, as nvidia-smi says", "median 5 %",
          "bloom_prequel.csv", bloom_cases, median_within(0.05), unit="thousand MiB"),
    Table("bigscience-1b3", "A GPT of 1.3 billion on 8 V100, as nvidia-smi says", "none, reported",
          "bigscience_1b3.csv", small_bigscience_cases, reported, unit="thousand MiB"),
    Table("simumax", "Llama 3 under Megatron-LM on 8 B200: torch.cuda's peak of each stage", "each row 3 %, median 1 %",
          "simumax_b200.csv", simumax_cases, all_of(each_within(0.03), median_within(0.01)), unit="MiB"),
]
