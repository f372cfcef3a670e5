"""One forward pass, watched: which op on which tensors, in which module, and when Python lets go of each tensor."""
import contextlib
import json
import sys
import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import ops as op_table

DTYPES = {
    torch.float32: "float32", torch.float64: "float64", torch.float16: "float16", torch.bfloat16: "bfloat16",
    torch.int64: "int64", torch.int32: "int32", torch.uint8: "uint8", torch.int8: "uint8", torch.bool: "bool",
}


def dump(model, inputs, loss_fn, path, blocks=None):
    """Writes the program to `path` and returns it; says on stderr which ops have no rule.

    inputs   a tuple of the model's arguments, or a dict of keyword arguments
    loss_fn  takes the model's output and returns the scalar that backward starts from
    blocks   names of the modules that policies count; default: the children of the outermost ModuleLists (without any,
             of the outermost Sequentials)
    """
    program, missing = trace(model, inputs, loss_fn, blocks)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text_of(program))
    if missing:
        names = ", ".join("%s (%d)" % item for item in sorted(missing.items()))
        print("tidemark_capture: no rule for %s: written as custom ops without temporaries; give them in 'ops'" % names,
              file=sys.stderr)
    return program


def trace(model, inputs, loss_fn, blocks=None):
    """The program as a dict, and how often each op without a rule occurs."""
    tracer = Tracer(model, block_modules(model, blocks))
    named = dict(inputs) if isinstance(inputs, dict) else {"input%d" % i: t for i, t in enumerate(inputs)}
    for name, value in named.items():
        if torch.is_tensor(value):
            tracer.add_leaf(name, value)
    with module_calls(tracer), torch.autograd.graph.saved_tensors_hooks(tracer.on_save, lambda packed: packed):
        with tracer:
            loss = loss_fn(model(**inputs) if isinstance(inputs, dict) else model(*inputs))
        return tracer.finish(loss)


def text_of(program):
    """JSON with one tensor, op or release a line."""
    def lines(items, indent):
        return (",\n" + " " * indent).join(items)

    parts = []
    for key in ("parameters", "inputs"):
        leaves = ["%s: %s" % (json.dumps(name), json.dumps(leaf)) for name, leaf in program[key].items()]
        parts.append('"%s": {\n  %s\n }' % (key, lines(leaves, 2)))
    layers = []
    for layer in program["layers"]:
        ops = lines([json.dumps(op) for op in layer["ops"]], 4)
        head = json.dumps({key: value for key, value in layer.items() if key != "ops"})
        layers.append('%s, "ops": [\n    %s\n   ]}' % (head[:-1], ops))
    parts.append('"layers": [\n   %s\n ]' % lines(layers, 3))
    parts += ["%s: %s" % (json.dumps(key), json.dumps(program[key])) for key in ("loss", "logits") if key in program]
    return "{\n %s\n}\n" % lines(parts, 1)


def block_modules(model, names):
    """Modules that are blocks, by id; their names as in named_modules()."""
    modules = dict(model.named_modules())
    if names is not None:
        unknown = [name for name in names if name not in modules]
        if unknown:
            raise ValueError("no module is called %r" % unknown[0])
        return {id(modules[name]): name for name in names}
    for kind in (torch.nn.ModuleList, torch.nn.Sequential):
        found = {}

        def visit(module, prefix):
            if isinstance(module, kind):
                for name, child in module.named_children():
                    found.setdefault(id(child), prefix + name)
                return
            for name, child in module.named_children():
                visit(child, prefix + name + ".")

        visit(model, "")
        if found:
            return found
    return {}


@contextlib.contextmanager
def module_calls(tracer):
    """Every module call tells the tracer, and so does F.linear, which under a dispatch mode adds its bias in another way
    than it does without one. The wrapper holds its arguments as long as the call itself does."""
    original, original_linear = torch.nn.Module.__call__, torch.nn.functional.linear

    def linear(*args, **kwargs):
        tracer.in_linear = True
        try:
            return original_linear(*args, **kwargs)
        finally:
            tracer.in_linear = False

    def call(module, *args, **kwargs):
        tracer.enter(module)
        try:
            result = original(module, *args, **kwargs)
            tracer.result_of_call(result)
            return result
        finally:
            tracer.leave()

    torch.nn.Module.__call__, torch.nn.functional.linear = call, linear
    try:
        yield
    finally:
        torch.nn.Module.__call__, torch.nn.functional.linear = original, original_linear


class Op:
    """An entry of the program, and the names that let go after it."""

    def __init__(self, layer, entry):
        self.layer, self.entry, self.releases, self.dropped = layer, entry, [], False


class Value:
    """A tensor as the program knows it."""

    def __init__(self, name, storage, shape, strides):
        self.name, self.storage, self.shape, self.strides = name, storage, shape, strides
        self.leaf, self.noise = False, None


class Tracer(TorchDispatchMode):
    def __init__(self, model, blocks):
        super().__init__()
        self.paths = {id(module): name for name, module in model.named_modules()}
        self.blocks = blocks
        self.stack, self.layer_of_call, self.calls = [], [], {}
        self.values = {}       # id of a tensor object -> Value
        self.by_storage = {}   # storage address -> Values that look at it, latest last
        self.alive = {}        # storage address -> tensor objects alive
        self.parameters, self.inputs, self.layers, self.ops = {}, {}, [], []
        self.missing, self.names, self.count, self.logits = {}, {}, 0, None
        self.saved, self.in_linear = [], False
        self.keep = []         # leaves live through the trace
        for name, parameter in model.named_parameters():
            self.add_leaf(name, parameter, self.parameters)
        for name, buffer in model.named_buffers():
            self.add_leaf(name, buffer)

    # ---- modules
    def enter(self, module):
        self.stack.append(self.paths.get(id(module), type(module).__name__))
        layer = self.layer_of_call[-1] if self.layer_of_call else None
        if layer is None and id(module) in self.blocks:
            layer = self.open_layer(self.blocks[id(module)], True)
        self.layer_of_call.append(layer)

    def leave(self):
        self.stack.pop()
        self.layer_of_call.pop()

    def result_of_call(self, result):
        if len(self.stack) == 1:
            result = getattr(result, "logits", result)
            value = self.values.get(id(result)) if torch.is_tensor(result) else None
            self.logits = value.name if value is not None and not value.leaf else None

    def open_layer(self, name, block):
        times = self.calls[name] = self.calls.get(name, 0) + 1
        layer = {"name": name if times == 1 else "%s#%d" % (name, times), "block": block, "ops": []}
        self.layers.append(layer)
        return layer

    def current_layer(self):
        """The block's, or one for what stands between blocks."""
        if self.layer_of_call and self.layer_of_call[-1] is not None:
            return self.layer_of_call[-1]
        top = self.stack[1].split(".")[0] if len(self.stack) > 1 else "model" if self.stack else "loss"
        last = self.layers[-1] if self.layers else None
        if last is not None and not last["block"] and (last["path"] == top or (top == "model" and self.stack)) \
                and last["path"] != "loss":
            return last
        if last is not None and last.get("path") == top:
            return last
        layer = self.open_layer(top, False)
        layer["path"] = top
        return layer

    # ---- tensors
    @staticmethod
    def storage(tensor):
        return (tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage())._cdata

    def watch(self, tensor, value):
        key = self.storage(tensor)
        self.values[id(tensor)] = value
        self.by_storage.setdefault(key, []).append(value)
        self.alive[key] = self.alive.get(key, 0) + 1
        weakref.finalize(tensor, self.on_death, id(tensor), key).atexit = False

    def on_death(self, number, key):
        value = self.values.pop(number, None)
        if value is not None and not value.leaf and self.ops:
            self.ops[-1].releases.append(value)
        self.alive[key] -= 1
        if self.alive[key] == 0:
            del self.alive[key]
            del self.by_storage[key]

    def describe(self, tensor):
        if tensor.dtype not in DTYPES:
            raise TypeError("a tensor of %s has no counterpart in Tidemark" % tensor.dtype)
        entry = {"shape": list(tensor.shape), "dtype": DTYPES[tensor.dtype]}
        if not tensor.is_contiguous():
            entry["strides"] = list(tensor.stride())
        if tensor.requires_grad:
            entry["requires_grad"] = True
        return entry

    def add_leaf(self, name, tensor, where=None):
        where = self.inputs if where is None else where
        if id(tensor) in self.values:
            return self.values[id(tensor)]
        value = Value(name, self.storage(tensor), tuple(tensor.shape), tuple(tensor.stride()))
        value.leaf = True
        where[name] = self.describe(tensor)
        if where is self.parameters and not tensor.requires_grad:
            where[name]["requires_grad"] = False
        self.keep.append(tensor)
        self.watch(tensor, value)
        return value

    def lookup(self, tensor):
        """The Value of an operand. A tensor object never seen may be a view that C++ made anew of one that was."""
        value = self.values.get(id(tensor))
        if value is not None:
            return value
        for value in reversed(self.by_storage.get(self.storage(tensor), [])):
            if value.shape == tuple(tensor.shape) and value.strides == tuple(tensor.stride()):
                for op in self.ops:
                    if value in op.releases:
                        op.releases.remove(value)
                self.watch(tensor, value)
                return value
        return self.add_leaf("constant%d" % len(self.inputs), tensor)

    def define(self, tensor):
        self.count += 1
        value = Value("t%d" % self.count, self.storage(tensor), tuple(tensor.shape), tuple(tensor.stride()))
        self.watch(tensor, value)
        return value

    def redefine(self, tensor):
        """An op in place: the object has a new value; the old one lets go."""
        old = self.values[id(tensor)]
        self.count += 1
        value = Value("t%d" % self.count, old.storage, tuple(tensor.shape), tuple(tensor.stride()))
        self.values[id(tensor)] = value
        self.by_storage.setdefault(self.storage(tensor), []).append(value)
        return value, old

    # ---- ops
    def on_save(self, tensor):
        """Stands for what a node would hold, so that Python's scopes alone decide when a tensor dies."""
        self.saved.append((self.storage(tensor), len(self.ops)))

    def name_of(self, layer, packet):
        path = self.stack[-1] if self.stack else ""
        own = layer["name"].split("#")[0]
        path = path[len(own) + 1:] if path.startswith(own + ".") else "" if path == own else path
        name = (path + "." if path else "") + packet.strip("_")
        times = self.names[(id(layer), name)] = self.names.get((id(layer), name), 0) + 1
        return name if times == 1 else "%s.%d" % (name, times)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        operands = [value for value in map(self.lookup, op_table.tensors_in((args, kwargs)))]
        result = func(*args, **kwargs)
        op_table.record(self, func, args, kwargs, operands, result)
        return result

    def emit(self, packet, kind, operands, outputs, **keys):
        layer = self.current_layer()
        entry = {"op": kind, "name": self.name_of(layer, packet), "in": [value.name for value in operands],
                 "out": [value.name for value in outputs]}
        entry.update({key: value for key, value in keys.items() if value is not None})
        if not torch.is_grad_enabled():
            entry["detached"] = True
        op = Op(layer, entry)
        self.ops.append(op)
        return op

    def finish(self, loss):
        if not torch.is_tensor(loss) or self.values.get(id(loss)) is None or self.values[id(loss)].leaf:
            raise ValueError("loss_fn must return a tensor made of the model's output")
        loss_name = self.values[id(loss)].name
        carried = []
        for op in self.ops:
            if op.dropped:
                carried += op.releases
                continue
            op.releases, carried = carried + op.releases, []
            op.layer["ops"].append(op.entry)
            names = [value.name for value in op.releases if value.noise is None and value.name != loss_name]
            if names:
                op.layer["ops"].append({"release": names})
        layers = [{key: layer[key] for key in ("name", "block", "ops")} for layer in self.layers if layer["ops"]]
        used = {name for op in self.ops if not op.dropped for name in op.entry["in"]}
        program = {"parameters": self.parameters,
                   "inputs": {name: leaf for name, leaf in self.inputs.items() if name in used or not name.startswith("constant")},
                   "layers": layers, "loss": loss_name}
        if self.logits:
            program["logits"] = self.logits
        return program, self.missing
