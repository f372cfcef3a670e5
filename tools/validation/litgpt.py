"""LitGPT's resource tables: LoRA on one A100-40GB, as its own model code of October 2023 runs (commit 8641822).

The model is written down op by op: lit_gpt/model.py, lora.py and rmsnorm.py, finetune/lora.py. The peak is that of the
first iteration, which has the longest sample of the data set: no gradients or states are there yet."""
from cases import Case, Table, each_within

GB = 10**9
LORA_RANK, CHUNK = 8, 128  # finetune/lora.py: rank of q and of v; rows of a product of the head
# layers, width, heads, inside, padded vocabulary, gated and serial (Llama) or not (GPT-NeoX), norms a block, the part
# of a head that is rotated
MODELS = {"Llama 2 7B": (32, 4096, 32, 11008, 32000, True, 2, 1.0),
          "Llama 2 13B": (40, 5120, 40, 13824, 32000, True, 2, 1.0),
          "StableLM Alpha 3B": (16, 4096, 32, 16384, 50688, False, 2, 0.25),
          "phi-1.5": (24, 2048, 32, 8192, 51200, False, 1, 0.5)}


class Writer:
    """Ops of one layer, in order."""

    def __init__(self, parameters, prefix):
        self.ops, self.parameters, self.prefix = [], parameters, prefix

    def op(self, kind, name, operands, **more):
        self.ops.append({"op": kind, "in": operands, "out": self.prefix + name, **more})
        return self.prefix + name

    def weight(self, name, *shape, trained=False):
        path = f"{self.prefix}{name}"
        self.parameters[path] = {"shape": list(shape), "dtype": "bfloat16", "requires_grad": trained}
        return path


def rms_norm(w, name, x, width):
    """RMSNorm.forward: all in bf16."""
    return normed_row(w, name, x, width)


def wide_rms_norm(w, name, x, width):
    """RMSNorm.forward as of 24 October 2023 (6178c7cc): x.float(), and back at the end."""
    return w.op("cast", f"{name}.half", [normed_row(w, name, w.op("cast", f"{name}.float", [x], dtype="float32"), width)],
                dtype="bfloat16")


def normed_row(w, name, x, width):
    square = w.op("mul", f"{name}.square", [x, x])
    mean = w.op("mean", f"{name}.mean", [square], dims=[2])
    row = w.op("rsqrt", f"{name}.rsqrt", [w.op("add_scalar", f"{name}.epsilon", [mean])])
    normed = w.op("mul", f"{name}.normed", [x, row])
    return w.op("mul", name, [w.weight(f"{name}.weight", width), normed])


def layer_norm(w, name, x, width):
    return w.op("layer_norm", name, [x, w.weight(f"{name}.weight", width), w.weight(f"{name}.bias", width)])


def row_norm(gated, wide):
    return layer_norm if not gated else wide_rms_norm if wide else rms_norm


def linear(w, name, x, out, inside, bias):
    operands = [x, w.weight(f"{name}.weight", out, inside)]
    return w.op("linear", name, operands + ([w.weight(f"{name}.bias", out)] if bias else []))


def adapted_qkv(w, x, sizes, batch, rows, bias):
    """LoRAQKVLinear.forward: adapters of q and v as one grouped convolution, padded with zeros where k stands."""
    width = sizes[1]
    pretrained = linear(w, "qkv", x, 3 * width, width, bias)
    down = w.op("linear", "after_a", [w.op("dropout", "lora.dropout", [x], probability=0.05),
                                      w.weight("lora_a", 2 * LORA_RANK, width, trained=True)])
    turned = w.op("transpose", "after_a.turned", [down], dims=[1, 2])
    up = w.op("custom", "after_b", [turned, w.weight("lora_b", 2 * width, LORA_RANK, trained=True)],
              shapes=[[batch, 2 * width, rows]], dtype="bfloat16", rule="conv1d",
              saves=["in0", "in1"])
    by_row = w.op("permute", "after_b.turned", [up], dims=[2, 0, 1])
    if batch > 1:  # else reshape can view it
        by_row = w.op("contiguous", "after_b.copy", [by_row])
    source = w.op("reshape", "source", [by_row], shape=[rows * batch, 2 * width])
    zeros = w.op("fill", "zeros", [], shape=[rows * batch, 3 * width], dtype="bfloat16")
    # derivatives.yaml: index_copy's gradient of `source` is expanded as `source`, which is kept for that
    padded = w.op("custom", "padded", [zeros, source], shapes=[[rows * batch, 3 * width]], dtype="bfloat16",
                  rule="index_copy", saves=["in1"], backward=["+d1"])
    scaled = w.op("scale", "scaling", [padded])
    lora = w.op("transpose", "lora", [w.op("reshape", "lora.rows", [scaled], shape=[rows, batch, 3 * width])],
                dims=[0, 1])
    return w.op("add", "qkv.sum", [pretrained, lora])


def rope(w, name, x, head, rotated):
    """apply_rope: tables in fp32, so the products are; cast back, and joined with what is not rotated."""
    part = x if rotated == head else w.op("slice", f"{name}.part", [x], dims=[3], sizes=[0, rotated])
    first = w.op("slice", f"{name}.first", [part], dims=[3], sizes=[0, rotated // 2])
    second = w.op("slice", f"{name}.second", [part], dims=[3], sizes=[rotated // 2, rotated // 2])
    turned = w.op("cat", f"{name}.turned", [w.op("scale", f"{name}.negated", [second]), first], dims=[3])
    straight = w.op("mul", f"{name}.straight", [part, "cos"])
    crossed = w.op("mul", f"{name}.crossed", [turned, "sin"])
    roped = w.op("cast", f"{name}.half", [w.op("add", f"{name}.sum", [straight, crossed])], dtype="bfloat16")
    if rotated == head:
        return w.op("contiguous", f"{name}.joined", [roped])
    rest = w.op("slice", f"{name}.rest", [x], dims=[3], sizes=[rotated, head - rotated])
    return w.op("cat", f"{name}.joined", [roped, rest], dims=[3])


def attention(w, x, sizes, batch, rows, bias):
    width, heads = sizes[1], sizes[2]
    head = width // heads
    qkv = adapted_qkv(w, x, sizes, batch, rows, bias)
    split = w.op("permute", "heads", [w.op("reshape", "groups", [qkv], shape=[batch, rows, heads, 3, head])],
                 dims=[3, 0, 2, 1, 4])
    q, k, v = [f"{w.prefix}{part}" for part in "qkv"]
    w.ops.append({"op": "unbind", "in": [split], "out": [q, k, v], "dims": [0]})
    rotated = int(head * sizes[7])
    q, k = rope(w, "q.rope", q, head, rotated), rope(w, "k.rope", k, head, rotated)
    y = w.op("attention", "attention", [q, k, v], causal=True)
    merged = w.op("reshape", "merged", [w.op("transpose", "attention.turned", [y], dims=[1, 2])],
                  shape=[batch, rows, width])
    return linear(w, "proj", merged, width, width, bias)


def feed_forward(w, x, sizes):
    width, inside, gated = sizes[1], sizes[3], sizes[5]
    if gated:
        gate = w.op("silu", "silu", [linear(w, "fc_1", x, inside, width, False)])
        return linear(w, "mlp.proj", w.op("mul", "product", [gate, linear(w, "fc_2", x, inside, width, False)]),
                      width, inside, False)
    return linear(w, "mlp.proj", w.op("gelu", "gelu", [linear(w, "fc", x, inside, width, True)]), width, inside, True)


def block(parameters, number, x, sizes, batch, rows, wide):
    """Block.forward. Names of the layer before are out of scope."""
    w = Writer(parameters, f"h{number}.")
    width, gated, norms = sizes[1], sizes[5], sizes[6]
    norm = row_norm(gated, wide)
    first = norm(w, "norm_1", x, width)
    mixed = attention(w, first, sizes, batch, rows, not gated)
    if gated:
        middle = w.op("add", "middle", [x, mixed])
        out = w.op("add", "out", [middle, feed_forward(w, norm(w, "norm_2", middle, width), sizes)])
    else:
        second = first if norms == 1 else norm(w, "norm_2", x, width)
        out = w.op("add", "out", [w.op("add", "middle", [x, mixed]), feed_forward(w, second, sizes)])
    return {"name": f"h{number}", "block": True, "ops": w.ops}, out


def program(sizes, batch, rows, wide):
    parameters, layers = {}, []
    layers_count, width, heads, _, vocab, gated = sizes[:6]
    rotated = int(width // heads * sizes[7])
    w = Writer(parameters, "")
    w.op("embedding", "x0", ["ids", w.weight("wte", vocab, width)])
    layers.append({"name": "embedding", "ops": w.ops})
    x = "x0"
    for number in range(layers_count):
        layer, x = block(parameters, number, x, sizes, batch, rows, wide)
        layers.append(layer)
    w = Writer(parameters, "")
    x = row_norm(gated, wide)(w, "ln_f", x, width)
    parts = [min(CHUNK, rows - at) for at in range(0, rows, CHUNK)]
    names = [f"chunk{i}" for i in range(len(parts))]
    w.ops.append({"op": "split", "in": [x], "out": names, "dims": [1], "sizes": parts})
    head = w.weight("lm_head", vocab, width)
    bias = [w.weight("lm_head.bias", vocab)] if sizes[6] == 1 else []
    logits = [w.op("linear", f"logits{i}", [name, head, *bias]) for i, name in enumerate(names)]
    # The model runs under Fabric, which returns what it gives in the type that is torch's default outside it
    # (lightning 71aed75: _FabricModule.forward, HalfPrecision.convert_output).
    floats = [w.op("cast", f"logits{i}.float", [name], dtype="float32") for i, name in enumerate(logits)]
    w.ops.append({"release": logits})
    inputs = {"ids": {"shape": [batch, rows], "dtype": "int64"}, "cos": [rows, rotated], "sin": [rows, rotated]}
    total = None
    for i, (name, part) in enumerate(zip(floats, parts)):
        inputs[f"target{i}"] = {"shape": [batch * part], "dtype": "int64"}
        flat = w.op("reshape", f"flat{i}", [name], shape=[batch * part, vocab])
        loss = w.op("cross_entropy", f"loss{i}", [flat, f"target{i}"])
        total = loss if total is None else w.op("add", f"total{i}", [total, loss])
    w.ops.append({"release": floats})
    layers.append({"name": "loss", "ops": w.ops})
    return {"family": "program", "parameters": parameters, "inputs": inputs, "layers": layers, "loss": total, "logits": floats}


def cases(rows):
    """Llama's rows twice: with the norms of the commit that the tables name, and with those that came a week later."""
    for row in rows:
        sizes = MODELS[row["model"]]
        for wide in (False, True) if sizes[5] else (False,):
            scenario = {"model": program(sizes, int(row["micro_batch"]), int(row["longest"]), wide), "device": "a100-40gb",
                        "loop": {"logits_held": True},  # the loop's variable, a list
                        "allocator": {"kind": "cuda_caching", "capacity": "200 GiB"}}
            yield Case(f"{row['model']}, micro-batch {row['micro_batch']}{', norms in fp32' if wide else ''}",
                       float(row["GB"]), scenario, lambda result: result.allocated_peak / GB,
                       note="the code from 24 October 2023 on" if wide else "")


def check(lines):
    """Llama's norms in bf16 leave 4 bytes a token, layer and column; everything else is within the rounding."""
    narrow = [line for line in lines if line.case.name.startswith("Llama") and "fp32" not in line.case.name]
    return each_within(0.05)(narrow) + each_within(0.003)([line for line in lines if line not in narrow])


TABLES = [Table("litgpt", "LitGPT's resource tables: LoRA on one A100",
                "0.3 %, Llama's norms in bf16 5 % (in fp32: 0.3 %)", "litgpt_lora.csv", cases,
                check, unit="GB")]
