"""Fine-tuning on one GPU: peaks of torch.cuda as trainers logged them."""
from cases import CONFIGS, Case, Table, all_of, each_within, exact, median_within

FMS_CONFIGS = {"Mistral-7B": "mistral-7b", "Meta-Llama-3-8B": "llama-3.1-8b", "Llama-2-70b": "llama-2-70b",
               "Llama-2-70B": "llama-2-70b", "Mixtral-8x7B": "mixtral-8x7b", "gpt_bigcode-santacoder": "santacoder",
               "PowerLM-3b": "powerlm-3b"}


def allocated(result):
    return result.allocated_peak


def fms_scenario(row):
    """fms-acceleration's framework_config in our words. Its settings: gradient checkpointing, flash attention, AdamW,
    packed sequences of 4096, adapters of rank 16 with dropout (scripts/benchmarks/scenarios.yaml)."""
    frame, half = row["framework"], row["dtype"]
    config = next(file for start, file in FMS_CONFIGS.items() if row["model"].startswith(start))
    small = config == "santacoder"
    scenario = {"model": {"family": "transformer", "config": str(CONFIGS / f"{config}.json"), "attention": "flash"},
                "profile": {"preset": "pytorch-cuda", "transformers": row["transformers"]},
                "batch": {"size": int(row["batch"]), "sequence": 2048 if small else 4096},
                "dtype": {"parameters": half, "compute": half}, "optimizer": "adamw",
                "policy": {"kind": "full", "checkpointing": "reentrant"}, "device": "a100-80gb",
                "allocator": {"kind": "cuda_caching", "capacity": "200 GiB"}}  # what is measured has fitted
    if row["amp"] == "yes":
        scenario["dtype"]["autocast"] = half
    if row["method"] != "full":
        scenario["lora"] = {"rank": 16, "targets": ["qkv_proj"] if small else ["q_proj", "k_proj", "v_proj", "o_proj"],
                            "dropout": 0.1}
    if small and row["method"] == "full":  # the trainer's name `outputs` is alive in backward: 2 B a token and word
        scenario["loop"] = {"logits_held": True}
    if "bnb" in frame:
        scenario["quantization"] = "nf4_double"
    if "gptq" in frame:  # those two models are quantized by whole columns
        scenario["quantization"] = "gptq_column" if config in ("llama-2-70b", "mixtral-8x7b") else "gptq"
    if frame == "baseline-peft-bnb":  # prepare_model_for_kbit_training
        scenario["dtype"]["norms"] = "float32"
    if "foak" in frame:
        scenario["profile"]["fused"] = ["norm", "rotary", "loss", *(["lora"] if "peft" in frame else [])]
    if "liger" in frame:
        scenario["loss"] = {"fused": True}
    return scenario


def fms_name(row):
    return f"{row['model']}, {row['method']}, {row['framework'] or 'plain'} ({row['file']}), batch {row['batch']}"


def fms_cases(rows):
    for row in rows:
        known = not row["model"].startswith("gpt_bigcode") or row["method"] == "full"
        yield Case(fms_name(row), int(row["peak"]), fms_scenario(row), allocated, bounded=known,
                   note="" if known else "6 B a token and word are not named")


def fsdp_scenario(row):
    """The same under accelerate's FSDP. Its mixed precision stores what is trained in fp32, gathers and reduces it in
    the half type, and leaves frozen weights as they are, so norms are never fp32. fms-acceleration's fused adapters
    are ignored by FSDP (fused-ops-and-kernels, lora_adapters_switch_ddp_from_fsdp). Their type is that of the packed
    weights' storage, which PEFT gives a new adapter; that it is not widened after that is no source's word but ours, from
    these rows' own resident bytes: 8 B a parameter, whatever the ranks."""
    scenario = fms_scenario(row)
    half, full = row["dtype"], row["method"] == "full"
    fsdp = {}
    scenario["dtype"].pop("norms", None)
    if row["amp"] == "yes":
        fsdp = {"parameter_dtype": half, "reduce_dtype": half}
        if full:
            scenario["dtype"]["parameters"] = "float32"
    if "foak" in row["framework"] and "peft" in row["framework"]:
        fsdp["ignored_modules"] = ["lora_A", "lora_B"]
        scenario["lora"]["dtype"] = half
    scenario["parallel"] = {"data": int(row["gpus"]), "sharding": "fsdp1", "fsdp": fsdp}
    scenario["allocator"] = "live"  # blocks of 512 bytes are no part of the question
    return scenario


def fsdp_cases(rows):
    for row in rows:
        known = not row["model"].startswith("gpt_bigcode") or row["method"] == "full"
        yield Case(f"{fms_name(row)}, {row['gpus']} GPUs", int(row["peak"]), fsdp_scenario(row),
                   lambda result: result.peak, bounded=known,
                   note="" if known else "the loss's bytes are not named, as on one GPU")


def torchtitan_cases(rows):
    """scenarios/llama-3.1-8b-fsdp2.yaml on other devices; what is reserved, so the allocator's model counts too."""
    for row in rows:
        scenario = {
            "profile": "torchtitan", "batch": {"size": 2, "sequence": 8192},
            "model": {"family": "transformer", "config": str(CONFIGS / "llama-3.1-8b.json"), "attention": "sdpa"},
            "dtype": {"parameters": "float32", "compute": "bfloat16"}, "optimizer": {"kind": "adamw", "fused": True},
            "policy": {"kind": "selective", "keep": ["core_attn.attention", "linear/2+1"],
                       "checkpointing": {"kind": "nonreentrant", "early_stop": False}},
            "parallel": {"data": int(row["gpus"]), "sharding": "fsdp2",
                         "fsdp": {"parameter_dtype": "bfloat16", "reduce_dtype": "float32"}},
            "device": row["device"], "allocator": {"kind": "cuda_caching", "capacity": "200 GiB"}}
        yield Case(f"{row['gpus']} GPUs, {row['modules'] or 'eager'}", float(row["GiB"]), scenario,
                   lambda result: result.summary["reserved_peak_bytes"] / (1 << 30), bounded=False,
                   note=f"{row['modules']}: not simulated" if row["modules"] else "what is reserved: no tensor names it")


def exact_slopes(lines):
    """Rows that differ in the batch only, where a dense model's last layer peaks: bytes a token, to the byte."""
    runs = {}
    for line in lines:
        name, batch = line.case.name.rsplit(", batch ", 1)
        if line.phase == "backward" and line.case.bounded and not name.startswith("Mixtral"):
            runs.setdefault(name, []).append((int(batch), line))
    problems = []
    for name, members in runs.items():
        members.sort(key=lambda member: member[0])
        for (low, first), (high, last) in zip(members, members[1:]):
            excess = last.error - first.error
            if excess != 0:
                problems.append(f"{name}: batch {low} to {high}: {excess / 4096 / (high - low):+,.2f} B a token")
    if len(runs) < 5:
        problems.append(f"only {len(runs)} slopes were met")
    return problems


def lomo_cases(rows):
    """States are sums of kinds of tensors; activations the loss's peak over what lives through the step. LOMO is SGD
    that updates each weight when its gradient is there."""
    for row in rows:
        adamw = row["optimizer"] == "adamw"
        scenario = {"model": {"family": "transformer", "config": str(CONFIGS / "llama-2-7b.json"), "attention": "eager"},
                    "profile": {"preset": "pytorch-cuda", "transformers": "4.29"},
                    "batch": {"size": 8, "sequence": 512},
                    "optimizer": "adamw" if adamw else {"kind": "sgd", "in_backward": True},
                    "dtype": {"parameters": "float16", "compute": "float16"}, "steps": 2}
        if adamw:
            scenario["dtype"]["master"] = "float32"
        if row["checkpointing"] == "yes":
            scenario["policy"] = {"kind": "full", "checkpointing": "reentrant"}
        else:  # lomo_trainer.py holds `outs`, and nothing turns use_cache off
            scenario["loop"] = {"logits_held": True, "cache_held": True}

        def figure(result, kind=row["figure"]):
            if kind == "activations":
                size = result.summary["phase_peaks"]["loss"] - result.summary["steady_bytes"]
            else:
                size = result.most_of(kind)
            return round(size / (1 << 30), 2)

        yield Case(f"{row['optimizer']}: {row['figure']}, checkpointing {row['checkpointing']}", float(row["GiB"]),
                   scenario, figure, timeline=row["figure"] != "activations")


def lomo_check(lines):
    states = [line for line in lines if "activations" not in line.case.name]
    rest = [line for line in lines if "activations" in line.case.name]
    return exact(states) + each_within(0.06)(rest)


TABLES = [
    Table("lomo", "LLaMA-7B in mixed precision with AdamW and with LOMO",
          "states 0 GiB as rounded, activations 6 %", "lomo_llama7b.csv", lomo_cases, lomo_check, unit="GiB"),
    Table("fms", "fms-acceleration on one A100: full fine-tuning, LoRA, QLoRA, GPTQ, with and without fused kernels",
          "median 0.3 %, no row above 3 %, slopes a token 0 B where a layer peaks", "fms_one_gpu.csv", fms_cases,
          all_of(median_within(0.003), each_within(0.03), exact_slopes)),
    Table("fms-fsdp", "the same on 2 and 4 GPUs under FSDP: rank 0", "median 1 %, no row above 5 %", "fms_fsdp.csv",
          fsdp_cases, all_of(median_within(0.01), each_within(0.05))),
    Table("torchtitan", "Llama 3.1 8B under torchtitan with FSDP2", "none: what is reserved, and compiled", "torchtitan_fsdp2.csv",
          torchtitan_cases, exact, unit="GiB"),
]
