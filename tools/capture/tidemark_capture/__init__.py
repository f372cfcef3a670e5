"""Writes the forward pass of a PyTorch model down as a Tidemark program.

    import tidemark_capture
    tidemark_capture.dump(model, inputs, loss_fn, "program.json")

One forward pass and its loss run, on CPU or meta tensors; nothing runs backward. PyTorch 1.13 or later.
"""
from .capture import dump, trace

__all__ = ["dump", "trace"]
