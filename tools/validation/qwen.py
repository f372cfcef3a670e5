"""Qwen's README: fine-tuning of Qwen 1.8B, 7B and 14B on one GPU, in GB as its authors read them."""
from cases import CONFIGS, Case, Table, median_within

GB = 10**9
# The CUDA context of an A100: the least that nvidia-smi shows over torch's allocated bytes in fms-acceleration's
# benchmarks (Llama 3 8B, all parameters trained with fused kernels, batch 4), so at most this.
CONTEXT = 940 << 20
# ds_config_zero2.json: two buckets of 2e8 gradients in fp16, as overlap_comm asks for a second one.
BUCKETS = 2 * 200_000_000 * 2


def scenario(row):
    """finetune.py under the Trainer: bf16 autocast, adapters of rank 64 in fp32 on all products of a block."""
    out = {"model": {"family": "transformer", "config": str(CONFIGS / f"{row['model']}.json"), "attention": "flash"},
           "profile": "pytorch-cuda", "batch": {"size": 1, "sequence": int(row["sequence"]), "accumulate": 2},
           "dtype": {"parameters": "bfloat16", "autocast": "bfloat16"}, "optimizer": "adamw",
           "policy": {"kind": "full", "checkpointing": "reentrant"}, "device": "a100-80gb",
           "allocator": {"kind": "cuda_caching", "capacity": "200 GiB"}}
    if row["method"] in ("Full-parameter", "Q-LoRA"):  # DeepSpeed: its fused Adam, its step on flat gradients
        out["profile"] = {"preset": "pytorch-cuda", "loop": "deepspeed"}
        out["optimizer"] = {"kind": "adamw", "fused": True}
        out["parallel"] = {"data": 1, "sharding": "zero1"}  # ZeRO 2 of one rank has the same step
    if row["method"] == "Full-parameter":
        out["dtype"] = {"parameters": "bfloat16", "compute": "bfloat16", "master": "float32"}
        return out
    out["lora"] = {"rank": 64, "targets": ["qkv_proj", "o_proj", "gate_proj", "up_proj", "down_proj"], "dropout": 0.05}
    if row["method"] == "LoRA (emb)":
        out["lora"]["trained"] = ["tokens", "lm_head"]  # modules_to_save: in bf16, and so are their moments
    if row["method"] == "Q-LoRA":  # DeepSpeed's fp16 engine: no autocast
        out["dtype"] = {"parameters": "float16", "compute": "float16", "master": "float32"}
        out["lora"]["dtype"] = "float16"
        out["quantization"] = "gptq"
    return out


def cases(rows):
    """What nvidia-smi would show: the allocator's segments and the context."""
    for row in rows:
        beside = CONTEXT + (BUCKETS if "parallel" in scenario(row) else 0)
        known = row["method"] != "Q-LoRA"
        yield Case(f"{row['model']}, {row['method']}, {row['sequence']} tokens", float(row["GB"]), scenario(row),
                   lambda result, beside=beside: (result.summary["reserved_peak_bytes"] + beside) / GB,
                   bounded=known, note="" if known else "1.8B, and 14B at its shortest, have up to 2 GB that are not named")


TABLES = [Table("qwen", "Qwen's README: fine-tuning on one A100", "median 3.5 % (3 % is not reached)",
                "qwen_finetuning.csv", cases, median_within(0.035), unit="GB")]
