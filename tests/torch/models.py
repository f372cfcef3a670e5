"""Small networks of nn.Modules whose blocks a policy may checkpoint."""
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


def run_blocks(blocks, x, policy):
    """What the policy means in PyTorch's own words."""
    kind = policy["kind"]
    how = policy.get("checkpointing", {})
    options = {"use_reentrant": how.get("kind") == "reentrant", "preserve_rng_state": how.get("preserve_rng", True)}
    if kind == "none":
        for block in blocks:
            x = block(x)
        return x
    if kind == "interval":
        size = policy["interval"]
        for first in range(0, len(blocks), size):
            def segment(h, part=blocks[first:first + size]):
                for block in part:
                    h = block(h)
                return h
            x = checkpoint(segment, x, **options)
        return x
    raise ValueError(kind)


class MlpBlock(nn.Module):
    def __init__(self, width, hidden, activation):
        super().__init__()
        self.up, self.down, self.activation = nn.Linear(width, hidden), nn.Linear(hidden, width), activation

    def forward(self, x):
        return self.down(self.activation(self.up(x)))


class Mlp(nn.Module):
    def __init__(self, layers=5, width=24, hidden=40, activation=torch.relu):
        super().__init__()
        self.blocks = nn.ModuleList(MlpBlock(width, hidden, activation) for _ in range(layers))
        self.policy = {"kind": "none"}

    def forward(self, x):
        return run_blocks(self.blocks, x, self.policy)


class Attention(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, rows, width = x.shape
        q, k, v = self.qkv(x).split(width, dim=2)
        q, k, v = (t.view(batch, rows, self.heads, width // self.heads).transpose(1, 2) for t in (q, k, v))
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(width // self.heads)
        mask = torch.ones(rows, rows, dtype=torch.bool).triu(1)
        weights = F.dropout(F.softmax(scores.masked_fill(mask, float("-inf")), dim=-1), self.dropout)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, rows, width))


class GptBlock(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.ln1, self.attn, self.ln2 = nn.LayerNorm(width), Attention(width, heads, dropout), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class Gpt(nn.Module):
    def __init__(self, layers=3, width=32, heads=4, vocab=101, rows=16, dropout=0.1, tied=True):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, width), nn.Embedding(rows, width)
        self.blocks = nn.ModuleList(GptBlock(width, heads, dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)
        if tied:
            self.head.weight = self.tokens.weight
        self.policy = {"kind": "none"}

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        return self.head(self.norm(run_blocks(self.blocks, x, self.policy)))


class LlamaBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.gain1, self.gain2 = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    @staticmethod
    def norm(x, gain):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * gain

    def forward(self, x):
        batch, rows, width = x.shape
        h = self.norm(x, self.gain1)
        q, k, v = (p(h).view(batch, rows, self.heads, width // self.heads).transpose(1, 2)
                   for p in (self.q, self.k, self.v))
        weights = F.softmax((q @ k.transpose(-2, -1)) * 0.25, dim=-1)
        x = x + self.o((weights @ v).transpose(1, 2).contiguous().view(batch, rows, width))
        h = self.norm(x, self.gain2)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, layers=2, width=32, heads=4, vocab=53):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, vocab, bias=False)
        self.policy = {"kind": "none"}

    def forward(self, ids):
        return self.head(run_blocks(self.blocks, self.tokens(ids), self.policy))
