"""The example of docs/capture.md: a small language model, written down as a program.

    python3 tools/capture/example.py example.json
"""
import math
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tidemark_capture  # noqa: E402

VOCAB, WIDTH, HEADS, LAYERS, ROWS, BATCH = 8192, 256, 8, 8, 256, 8


class Norm(nn.Module):
    """Root mean square, with a gain."""

    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.gain


class Attention(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, nn.Dropout(dropout)
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.output = nn.Linear(width, width, bias=False)

    def split(self, x):
        batch, rows, width = x.shape
        return x.view(batch, rows, self.heads, width // self.heads).transpose(1, 2)

    def forward(self, x, mask):
        batch, rows, width = x.shape
        query, key, value = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = query @ key.transpose(-2, -1) / math.sqrt(width // self.heads)
        weights = self.dropout(F.softmax(scores.masked_fill(mask, float("-inf")), dim=-1))
        return self.output((weights @ value).transpose(1, 2).reshape(batch, rows, width))


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, width):
        super().__init__()
        self.gate, self.up = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.norm1, self.attention = Norm(width), Attention(width, heads, dropout)
        self.norm2, self.mlp = Norm(width), FeedForward(width)

    def forward(self, x, mask):
        x = x + self.attention(self.norm1(x), mask)
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, dropout=0.1):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, WIDTH), nn.Embedding(ROWS, WIDTH)
        self.blocks = nn.ModuleList(Block(WIDTH, HEADS, dropout) for _ in range(LAYERS))
        self.norm, self.head = Norm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids):
        rows = ids.shape[1]
        mask = torch.ones(rows, rows, dtype=torch.bool, device=ids.device).triu(1)
        x = self.tokens(ids) + self.positions(torch.arange(rows, device=ids.device))
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


def main():
    ids, labels = torch.randint(0, VOCAB, (BATCH, ROWS)), torch.randint(0, VOCAB, (BATCH, ROWS))

    def loss(logits):
        return F.cross_entropy(logits.view(-1, VOCAB), labels.view(-1))

    program = tidemark_capture.dump(Model(), (ids,), loss, sys.argv[1])
    print("%d ops in %d layers" % (sum(len(layer["ops"]) for layer in program["layers"]), len(program["layers"])))


if __name__ == "__main__":
    main()
