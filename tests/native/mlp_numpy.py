#!/usr/bin/env python3
"""Writes mlp_numpy.csv: what the seed's NumPy program computes for fixed inputs, in float64.

The functions below are the program as it is written; `fixed` gives the values that tools/native/mlp.cpp fills with.

    python3 tests/native/mlp_numpy.py > tests/native/mlp_numpy.csv
"""
import math

import numpy as np


def linear_forward(x, w, b):
    return x @ w + b


def relu(x):
    return np.maximum(x, 0)


def layer_forward(x, w1, b1, w2, b2):
    h = relu(linear_forward(x, w1, b1))
    return linear_forward(h, w2, b2)


def model_forward(x, params):
    activations = [x]
    h = x
    for w1, b1, w2, b2 in params:
        h = layer_forward(h, w1, b1, w2, b2)
        activations.append(h)
    return h, activations


def model_backward(grad_output, activations, params):
    grads = [None] * len(params)
    g = grad_output
    for i in range(len(params) - 1, -1, -1):
        w1, b1, w2, b2 = params[i]
        x_in = activations[i]
        h_pre = linear_forward(x_in, w1, b1)
        h = relu(h_pre)
        gh = g @ w2.T
        gw2 = h.T @ g
        gb2 = g.sum(axis=0)
        g_pre = gh * (h_pre > 0)
        gx = g_pre @ w1.T
        gw1 = x_in.T @ g_pre
        gb1 = g_pre.sum(axis=0)
        grads[i] = (gw1, gb1, gw2, gb2)
        g = gx
    return g, grads


def fixed(seed, scale, *shape):
    """The finalizer of splitmix64, and its upper 24 bits."""
    bits = np.arange(math.prod(shape), dtype=np.uint64) + np.uint64(seed << 32)
    bits *= np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    number = ((bits ^ (bits >> np.uint64(31))) >> np.uint64(40)) / 2.0**24
    return ((number - 0.5) * scale).astype(np.float32).astype(np.float64).reshape(shape)


LAYERS, ROWS, WIDTH, HIDDEN = 3, 4, 5, 6

if __name__ == "__main__":
    params = []
    for layer in range(LAYERS):
        params.append((fixed(4 * layer, 3 / math.sqrt(WIDTH), WIDTH, HIDDEN), fixed(4 * layer + 1, 0.5, HIDDEN),
                       fixed(4 * layer + 2, 3 / math.sqrt(HIDDEN), HIDDEN, WIDTH), fixed(4 * layer + 3, 0.5, WIDTH)))
    x = fixed(4 * LAYERS, 2.0, ROWS, WIDTH)
    grad_output = fixed(4 * LAYERS + 1, 2.0, ROWS, WIDTH)
    out, activations = model_forward(x, params)
    g, grads = model_backward(grad_output, activations, params)
    tensors = [("out", out), ("x.grad", g)]
    for layer, gradients in enumerate(grads):
        tensors += [(f"layers.{layer}.{name}.grad", gradient)
                    for name, gradient in zip(("w1", "b1", "w2", "b2"), gradients)]
    print(f"# {LAYERS} layers, {ROWS} rows, {WIDTH} wide, {HIDDEN} hidden; NumPy {np.__version__}, float64, "
          "by mlp_numpy.py")
    print("tensor,values")
    for name, tensor in tensors:
        print(f"{name}," + " ".join(f"{value:.9g}" for value in tensor.ravel()))
