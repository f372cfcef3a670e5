"""How each aten op is written in a program: its kind, its operands, and what operands do not say.

`RULES` maps an op's name, without overload, to a function (tracer, call) that emits entries. What is not listed becomes a
custom op: its results, what its node saves, and the FLOPs of a convolution; its temporaries are not known.
"""
import torch

POINTWISE = {"relu", "gelu", "silu", "tanh", "sigmoid", "exp", "log", "sqrt", "rsqrt", "sin", "cos", "erf", "reciprocal",
             "neg", "abs", "leaky_relu", "elu", "softplus", "hardtanh", "hardswish", "_softmax", "_log_softmax", "tril",
             "triu", "pow"}
NAMES = {"_softmax": "softmax", "_log_softmax": "log_softmax", "tril": "triangle", "triu": "triangle"}
BINARY = {"mul": "mul", "div": "div", "sub": "sub", "add": "add"}
WITH_NUMBER = {"mul": "scale", "div": "scale", "add": "add_scalar", "sub": "add_scalar"}
COMPARE = {"eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "bitwise_and", "bitwise_or", "logical_not",
           "bitwise_not"}
NEW = {"arange", "zeros", "ones", "full", "empty", "empty_like", "zeros_like", "ones_like", "full_like", "randn", "rand",
       "scalar_tensor", "new_zeros", "new_ones", "new_full", "new_empty", "empty_strided", "randint", "randn_like",
       "rand_like", "linspace", "eye"}
RESHAPES = {"view", "_unsafe_view", "_reshape_alias", "unsqueeze", "squeeze", "alias", "detach", "lift_fresh", "view_as"}


def tensors_in(nest):
    if torch.is_tensor(nest):
        yield nest
    elif isinstance(nest, (list, tuple)):
        for item in nest:
            yield from tensors_in(item)
    elif isinstance(nest, dict):
        yield from tensors_in(list(nest.values()))


class Call:
    """One dispatched op: arguments by position or name, operands as the program knows them."""

    def __init__(self, func, args, kwargs, operands, result):
        self.packet = func.overloadpacket.__name__
        self.args, self.kwargs, self.operands, self.result = args, kwargs, operands, result
        self.schema = [argument.name for argument in func._schema.arguments]
        self.schema_defaults = {a.name: a.default_value for a in func._schema.arguments if a.has_default_value()}

    def get(self, name, otherwise=None):
        if name in self.kwargs:
            return self.kwargs[name]
        at = self.schema.index(name) if name in self.schema else len(self.args)
        return self.args[at] if at < len(self.args) else self.schema_defaults.get(name, otherwise)


def dims_of(dim):
    return list(dim) if isinstance(dim, (list, tuple)) else [dim]


def record(tracer, func, args, kwargs, operands, result):
    call = Call(func, args, kwargs, operands, result)
    packet = call.packet
    in_place = packet.endswith("_") and not packet.endswith("__") and torch.is_tensor(result) and len(args) > 0 \
        and result is args[0]
    base = packet[:-1] if in_place else packet
    if dropout(tracer, call, base, in_place):
        return
    results = [t for t in tensors_in(result)]
    emit = Emit(tracer, call, base, in_place, results)
    rule = RULES.get(base)
    if rule is None or rule(emit) is False:
        custom(emit)


class Emit:
    """Writes the entry of one call."""

    def __init__(self, tracer, call, base, in_place, results):
        self.tracer, self.call, self.base, self.in_place, self.results = tracer, call, base, in_place, results

    def tensor(self, name):
        value = self.call.get(name)
        return self.tracer.lookup(value) if torch.is_tensor(value) else None

    def write(self, kind, operands, count=1, **keys):
        """The first `count` results are the op's; the others are inside the rule."""
        old = None
        if self.in_place:
            value, old = self.tracer.redefine(self.results[0])
            outputs, keys["in_place"] = [value], True
        else:
            outputs = [self.tracer.define(t) for t in self.results[:count]]
            for t in self.results[count:]:
                self.tracer.define(t).noise = "inside"
        result = self.results[0]
        if not self.in_place and result.dim() > 0 and "strides" not in keys and kind not in ("split", "unbind", "custom"):
            keys["strides"] = list(result.stride())
        op = self.tracer.emit(self.base, kind, operands, outputs, **keys)
        if old is not None and not old.leaf:
            op.releases.append(old)
        return op


def dropout(tracer, call, base, in_place):
    """empty_like, bernoulli_, div_, mul: the CPU's dropout is one op of a program."""
    values = call.operands
    if base == "bernoulli" and in_place and tracer.ops and tracer.ops[-1].entry["out"] == [values[0].name]:
        tracer.ops[-1].dropped = True
        probability = call.args[1] if len(call.args) > 1 else call.kwargs.get("p", 0.5)
        values[0].noise = 1 - probability
        return True
    if base == "div" and in_place and isinstance(values[0].noise, float):
        return True
    if base == "mul" and len(values) == 2 and isinstance(values[1].noise, float):
        noise = values[1].noise
        Emit(tracer, call, "dropout", in_place, [call.result]).write(
            "dropout", values[:1], probability=round(noise, 6))
        return True
    return False


def pointwise(e):
    e.write(NAMES.get(e.base, e.base), e.call.operands[:1])


def binary(e):
    if e.call.get("alpha", 1) not in (1, None):
        return False
    second = e.call.get("other")
    if torch.is_tensor(second) and torch.is_tensor(e.call.get("self")):
        if e.call.get("rounding_mode") is not None:
            return False
        # matmul(x, w.t()).add_(bias): out of place only because it is watched
        adds_bias = e.tracer.in_linear and e.base == "add" and not e.in_place
        e.write(BINARY[e.base], e.call.operands[:2], in_place=True if adds_bias else None)
    else:
        e.write(WITH_NUMBER[e.base], e.call.operands[:1])
    return None


def rsub(e):
    if torch.is_tensor(e.call.get("other")):
        return False
    e.write("sub_from", e.call.operands[:1])
    return None


def clamp(e):
    bounds = [e.call.get("min"), e.call.get("max")]
    e.write("clamp", e.call.operands[:1], bounds="one" if None in bounds else None)


def reshaped(e):
    e.write("reshape", e.call.operands[:1], shape=list(e.results[0].shape),
            detached=True if e.base == "detach" else None)


def transposed(e):
    dims = [0, 1] if e.base in ("t", "numpy_T") else [e.call.get("dim0"), e.call.get("dim1")]
    if e.results[0].dim() < 2:
        return reshaped(e)
    return e.write("transpose", e.call.operands[:1], dims=dims) and None


def sliced(e):
    dim = e.call.get("dim", 0)
    step = e.call.get("step", 1)
    if step != 1:
        return False
    size = e.call.get("self").shape[dim]
    start = e.call.get("start") or 0
    start = max(0, start + size if start < 0 else start)
    e.write("slice", e.call.operands[:1], dims=[dim], sizes=[start, e.results[0].shape[dim]])
    return None


def selected(e):
    index = e.call.get("index")
    dim = e.call.get("dim")
    size = e.call.get("self").shape[dim]
    e.write("select", e.call.operands[:1], dims=[dim], sizes=[index + size if index < 0 else index])


def split(e):
    dim = e.call.get("dim", 0)
    e.write("split", e.call.operands[:1], len(e.results), dims=[dim], sizes=[t.shape[dim] for t in e.results])


def reduced(e):
    dims = e.call.get("dim")
    all_of_it = dims is None or dims == []
    if e.call.get("dtype") is not None and e.call.get("dtype") != e.call.get("self").dtype:
        return False
    e.write(e.base, e.call.operands[:1], dims=None if all_of_it else dims_of(dims), shape=list(e.results[0].shape))
    return None


def new(e):
    e.write("fill", [], shape=list(e.results[0].shape), dtype=dtype_name(e.results[0].dtype))


def dtype_name(dtype):
    from .capture import DTYPES
    return DTYPES[dtype]


def norm(kind, parts):
    def write(e):
        operands = [e.tensor(part) for part in parts]
        keys = {}
        if kind == "layer_norm" and len(e.call.get("normalized_shape")) != 1:
            return False
        if kind == "group_norm":
            keys["groups"] = e.call.get("group")
        if kind == "batch_norm" and not e.call.get("training"):
            return False
        if operands[1] is None:
            operands = operands[:1]
        e.write(kind, [value for value in operands if value is not None], **keys)
        return None
    return write


def nll_loss(e):
    e.write("nll_loss", e.call.operands[:2])


def attention(e):
    if e.call.get("dropout_p", 0.0):
        return False
    causal = True if e.call.get("is_causal") else None
    e.write("attention", [e.tensor("query"), e.tensor("key"), e.tensor("value")], causal=causal)
    return None


def custom(e):
    """Results and what is saved are as seen; FLOPs of a convolution are worked out."""
    tracer, call = e.tracer, e.call
    if e.in_place or any(tracer.by_storage.get(tracer.storage(t)) for t in e.results):
        if e.in_place and not torch.is_grad_enabled():
            return  # a write under no_grad: nothing is made
        raise NotImplementedError("aten.%s works in place or makes a view, and has no rule" % call.packet)
    name = "aten." + call.packet
    tracer.missing[name] = tracer.missing.get(name, 0) + 1
    here = len(tracer.ops)
    saved = {storage for storage, at in tracer.saved if at == here}
    saves = ["in%d" % i for i, value in enumerate(call.operands) if value.storage in saved]
    op = e.write("custom", call.operands, len(e.results), rule=name, shapes=[list(t.shape) for t in e.results],
                 dtype=dtype_name(e.results[0].dtype), forward_flops="%d FLOP" % flops(call),
                 backward_flops="%d FLOP" % (2 * flops(call)), saves=saves or None)
    op.results_saved = here


def flops(call):
    if call.packet != "convolution":
        return 0
    weight, groups = call.get("weight"), call.get("groups", 1)
    out = call.result
    per_output = 1
    for extent in weight.shape[2:]:
        per_output *= extent
    if call.get("transposed"):
        return 2 * call.get("input").numel() * weight.shape[1] * per_output
    del groups
    return 2 * out.numel() * weight.shape[1] * per_output


RULES = {name: pointwise for name in POINTWISE}
RULES.update({name: binary for name in BINARY})
RULES.update({name: new for name in NEW})
RULES.update({name: reshaped for name in RESHAPES})
RULES.update({
    "rsub": rsub, "clamp": clamp, "clamp_min": clamp, "clamp_max": clamp,
    "t": transposed, "transpose": transposed, "slice": sliced, "select": selected,
    "permute": lambda e: e.write("permute", e.call.operands, dims=list(e.call.get("dims"))) and None,
    "expand": lambda e: e.write("expand", e.call.operands, shape=list(e.results[0].shape)) and None,
    "split": split, "split_with_sizes": split,
    "unbind": lambda e: e.write("unbind", e.call.operands, len(e.results), dims=[e.call.get("dim", 0)]) and None,
    "mm": lambda e: e.write("matmul", e.call.operands) and None,
    "bmm": lambda e: e.write("bmm", e.call.operands) and None,
    "addmm": lambda e: e.write("addmm", e.call.operands) and None,
    "mean": reduced, "sum": reduced,
    "clone": lambda e: e.write("contiguous", e.call.operands) and None,
    "_to_copy": lambda e: e.write("cast", e.call.operands, dtype=dtype_name(e.results[0].dtype)) and None,
    "masked_fill": lambda e: e.write("masked_fill", e.call.operands[:2]) and None,
    "where": lambda e: e.write("where", e.call.operands) and None if len(e.call.operands) == 3 else False,
    "cat": lambda e: e.write("cat", e.call.operands, dims=[e.call.get("dim", 0)]) and None,
    "stack": lambda e: e.write("stack", e.call.operands, dims=[e.call.get("dim", 0)]) and None,
    "embedding": lambda e: e.write("embedding", [e.tensor("indices"), e.tensor("weight")]) and None,
    "index": lambda e: e.write("index", e.call.operands, shape=list(e.results[0].shape)) and None,
    "index_select": lambda e: e.write("index", e.call.operands, shape=list(e.results[0].shape)) and None,
    "gather": lambda e: e.write("gather", e.call.operands, shape=list(e.results[0].shape)) and None,
    "index_add": lambda e: e.write("index_add", e.call.operands) and None,
    "topk": lambda e: e.write("top_k", e.call.operands, 2, shape=list(e.results[0].shape)) and None,
    "max_pool2d_with_indices": lambda e: e.write("max_pool", e.call.operands, 2, shape=list(e.results[0].shape)) and None,
    "avg_pool2d": lambda e: e.write("avg_pool", e.call.operands, shape=list(e.results[0].shape)) and None,
    "native_layer_norm": norm("layer_norm", ["input", "weight", "bias"]),
    "native_group_norm": norm("group_norm", ["input", "weight", "bias"]),
    "native_batch_norm": norm("batch_norm", ["input", "weight", "bias", "running_mean", "running_var"]),
    "native_dropout": lambda e: e.write("dropout", e.call.operands, probability=e.call.get("p")) and None,
    "nll_loss_forward": nll_loss, "nll_loss2d_forward": nll_loss,
    "mse_loss": lambda e: e.write("mse_loss", e.call.operands) and None if e.call.get("reduction", 1) == 1 else False,
    "binary_cross_entropy_with_logits": lambda e: e.write("bce_loss", e.call.operands[:2]) and None,
    "_scaled_dot_product_flash_attention_for_cpu": attention,
    "_scaled_dot_product_flash_attention": attention,
    "_scaled_dot_product_efficient_attention": attention,
})
RULES.update({name: (lambda e: e.write("compare", e.call.operands) and None) for name in COMPARE})
