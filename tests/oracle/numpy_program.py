#!/usr/bin/env python3
"""Writes numpy_program.csv: births and deaths of every array when CPython runs the seed's NumPy program.

The functions below are the program as it is written. The arrays stand in for NumPy's: they have shapes and no values,
each operation makes a new one as NumPy does without temporary elision, views share their base's storage, and a storage
logs its birth (`+bytes`) and death (`-number of its birth`).

    python3 tests/oracle/numpy_program.py > tests/oracle/numpy_program.csv
"""

log = []
births = 0


class Storage:
    def __init__(self, count):
        global births
        self.number = births
        births += 1
        log.append(f"+{count}")

    def __del__(self):
        log.append(f"-{self.number}")


class Array:
    def __init__(self, shape, item=4, storage=None):
        self.shape = shape
        count = item
        for extent in shape:
            count *= extent
        self.storage = storage or Storage(count)

    @property
    def T(self):
        return Array(self.shape[::-1], storage=self.storage)

    def __matmul__(self, other):
        return Array((self.shape[0], other.shape[1]))

    def __add__(self, other):
        return Array(self.shape)

    def __mul__(self, other):
        return Array(self.shape)

    def __gt__(self, number):
        return Array(self.shape, item=1)

    def sum(self, axis):
        return Array(self.shape[1:])


class np:
    @staticmethod
    def maximum(x, number):
        return Array(x.shape)


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


def model_forward_checkpointed(x, params, k=4):
    saved_inputs = [x]
    h = x
    for i, (w1, b1, w2, b2) in enumerate(params):
        h = layer_forward(h, w1, b1, w2, b2)
        if (i + 1) % k == 0:
            saved_inputs.append(h)
    return h, saved_inputs


def model_backward_checkpointed(grad_output, saved_inputs, params, k=4):
    grads = [None] * len(params)
    g = grad_output
    segments = [(j * k, min((j + 1) * k, len(params))) for j in range(len(saved_inputs))]
    for seg_idx in range(len(saved_inputs) - 1, -1, -1):
        start, end = segments[seg_idx]
        if start >= end:
            continue
        x_in = saved_inputs[seg_idx]
        _, seg_acts = model_forward(x_in, params[start:end])
        g, seg_grads = model_backward(g, seg_acts, params[start:end])
        for j, gr in enumerate(seg_grads):
            grads[start + j] = gr
    return g, grads


def layer_forward_keeping(x, w1, b1, w2, b2):
    h_pre = linear_forward(x, w1, b1)
    h = relu(h_pre)
    return linear_forward(h, w2, b2), h_pre


def model_forward_keeping(x, params):
    activations = [x]
    pre_activations = []
    h = x
    for w1, b1, w2, b2 in params:
        h, h_pre = layer_forward_keeping(h, w1, b1, w2, b2)
        activations.append(h)
        pre_activations.append(h_pre)
    return h, activations, pre_activations


def model_backward_reading(grad_output, activations, pre_activations, params):
    grads = [None] * len(params)
    g = grad_output
    for i in range(len(params) - 1, -1, -1):
        w1, b1, w2, b2 = params[i]
        x_in = activations[i]
        h_pre = pre_activations[i]
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


def model_backward_checkpointed_keeping(grad_output, saved_inputs, params, k=4):
    grads = [None] * len(params)
    g = grad_output
    segments = [(j * k, min((j + 1) * k, len(params))) for j in range(len(saved_inputs))]
    for seg_idx in range(len(saved_inputs) - 1, -1, -1):
        start, end = segments[seg_idx]
        if start >= end:
            continue
        x_in = saved_inputs[seg_idx]
        _, seg_acts, seg_pre = model_forward_keeping(x_in, params[start:end])
        g, seg_grads = model_backward_reading(g, seg_acts, seg_pre, params[start:end])
        for j, gr in enumerate(seg_grads):
            grads[start + j] = gr
    return g, grads


def step(x, grad_output, params, k, keeping, out_held):
    if k == 0 and keeping:
        out, activations, pre_activations = model_forward_keeping(x, params)
        if not out_held:
            del out
        return model_backward_reading(grad_output, activations, pre_activations, params)
    if k == 0:
        out, activations = model_forward(x, params)
        if not out_held:
            del out
        return model_backward(grad_output, activations, params)
    out, saved = model_forward_checkpointed(x, params, k)
    if not out_held:
        del out
    backward = model_backward_checkpointed_keeping if keeping else model_backward_checkpointed
    return backward(grad_output, saved, params, k)


def events(layers, rows, width, hidden, k, keeping, out_held, steps):
    """Of the steps; what lives before them has the first numbers, what lives after them keeps living."""
    global births
    log.clear()
    births = 0
    params = []
    for _ in range(layers):
        params.append((Array((width, hidden)), Array((hidden,)), Array((hidden, width)), Array((width,))))
    x = Array((rows, width))
    grad_output = Array((rows, width))
    log.clear()
    for number in range(steps):
        if number > 0:
            del g, grads
        g, grads = step(x, grad_output, params, k, keeping, out_held)
    return " ".join(log)


CASES = [  # name, layers, rows, width, hidden, k, keeps pre-activations, out held, steps
    ("one layer", 1, 5, 2, 3, 0, 0, 0, 1),
    ("three layers", 3, 5, 2, 3, 0, 0, 0, 1),
    ("three layers and out held", 3, 5, 2, 3, 0, 0, 1, 1),
    ("segments divide the layers", 4, 5, 2, 3, 2, 0, 0, 1),
    ("the last segment is shorter", 5, 5, 2, 3, 2, 0, 0, 1),
    ("the last segment is shorter and out held", 5, 5, 2, 3, 2, 0, 1, 1),
    ("every layer a segment", 3, 5, 2, 3, 1, 0, 0, 1),
    ("one segment", 3, 5, 2, 3, 3, 0, 0, 1),
    ("kept pre-activations", 3, 5, 2, 3, 0, 1, 0, 1),
    ("kept pre-activations in segments", 5, 5, 2, 3, 2, 1, 0, 1),
    ("two steps", 2, 5, 2, 3, 0, 0, 0, 2),
    ("three steps in segments", 4, 7, 3, 2, 2, 0, 0, 3),
]

if __name__ == "__main__":
    print("# The seed's NumPy program run by CPython 3.11; made by numpy_program.py. +bytes is a birth, -n the death of")
    print("# the n-th born, the inputs w1, b1, w2, b2 of each layer, x and grad_output being born first.")
    print("name,layers,rows,width,hidden,segment,keeps_pre,out_held,steps,events")
    for case in CASES:
        text = events(*case[1:])
        print(",".join(str(field) for field in case) + "," + text)
