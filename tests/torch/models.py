"""Small networks of nn.Modules whose blocks a policy may checkpoint."""
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

try:
    from torch.utils.checkpoint import set_checkpoint_early_stop
except ImportError:
    set_checkpoint_early_stop = None  # PyTorch 1.13 never stops early


def run_blocks(blocks, x, policy, *shared):
    """What the policy means in PyTorch's own words."""
    kind = policy["kind"]
    how = policy.get("checkpointing", {})
    options = {"use_reentrant": how.get("kind") == "reentrant", "preserve_rng_state": how.get("preserve_rng", True)}
    if not how.get("early_stop", True):
        with set_checkpoint_early_stop(False):
            return run_blocks(blocks, x, {**policy, "checkpointing": {**how, "early_stop": True}}, *shared)
    if kind == "none":
        for block in blocks:
            x = block(x, *shared)
        return x
    if kind == "interval":
        size = policy["interval"]
        for first in range(0, len(blocks), size):
            def segment(h, *shared, part=blocks[first:first + size]):
                for block in part:
                    h = block(h, *shared)
                return h
            x = checkpoint(segment, x, *shared, **options)
        return x
    if kind == "sequential":
        functions = [lambda h, block=block: block(h, *shared) for block in blocks]
        if set_checkpoint_early_stop is None:
            del options["use_reentrant"]  # 1.13 knows reentrant regions only
        return checkpoint_sequential(functions, policy["segments"], x, **options)
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
        mask = torch.ones(rows, rows, dtype=torch.bool, device=x.device).triu(1)
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
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
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


class MixerBlock(nn.Module):
    """MLPs over positions and over channels, as in MLP-Mixer."""

    def __init__(self, rows, width):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(nn.Linear(rows, 2 * rows), nn.GELU(), nn.Linear(2 * rows, rows))
        self.channels = nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width))

    def forward(self, x):
        x = x + self.tokens(self.ln1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.ln2(x))


class Mixer(nn.Module):
    def __init__(self, layers=3, rows=12, width=20, classes=7):
        super().__init__()
        self.blocks = nn.ModuleList(MixerBlock(rows, width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)
        self.policy = {"kind": "none"}

    def forward(self, x):
        return self.head(self.norm(run_blocks(self.blocks, x, self.policy)).mean(dim=1))


class VitBlock(nn.Module):
    """Pre-norm attention through one fused projection, with a learned gain on each branch."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.gain = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x):
        batch, rows, width = x.shape
        qkv = self.qkv(self.ln1(x)).reshape(batch, rows, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        weights = ((q * (width // self.heads) ** -0.5) @ k.transpose(-2, -1)).softmax(dim=-1)
        x = x + self.gain * self.proj((weights @ v).transpose(1, 2).reshape(batch, rows, width))
        return x + self.fc2(F.gelu(self.fc1(self.ln2(x))))


class Vit(nn.Module):
    """Patches cut by views, a class token, learned positions."""

    def __init__(self, layers=2, image=8, patch=4, width=24, heads=3, classes=5):
        super().__init__()
        self.patch = patch
        rows = (image // patch) ** 2
        self.embed = nn.Linear(3 * patch * patch, width)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, rows + 1, width))
        self.blocks = nn.ModuleList(VitBlock(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)
        self.policy = {"kind": "none"}

    def forward(self, images):
        batch, channels, height, width = images.shape
        p = self.patch
        patches = images.view(batch, channels, height // p, p, width // p, p).permute(0, 2, 4, 1, 3, 5)
        x = self.embed(patches.reshape(batch, -1, channels * p * p))
        x = torch.cat((self.token.expand(batch, -1, -1), x), dim=1) + self.positions
        return self.head(self.norm(run_blocks(self.blocks, x, self.policy))[:, 0])


class T5Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        variance = x.pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + 1e-6))


class T5Block(nn.Module):
    """Unscaled attention with a bias that all blocks share, then a ReLU MLP."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.wi, self.wo = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
        self.norm1, self.norm2 = T5Norm(width), T5Norm(width)

    def forward(self, x, bias):
        batch, rows, width = x.shape

        def split(t):
            return t.view(batch, rows, self.heads, width // self.heads).transpose(1, 2)

        h = self.norm1(x)
        scores = split(self.q(h)) @ split(self.k(h)).transpose(3, 2)
        scores = scores + bias
        weights = F.softmax(scores, dim=-1)
        h = (weights @ split(self.v(h))).transpose(1, 2).contiguous().view(batch, rows, width)
        x = x + self.o(h)
        return x + self.wo(torch.relu(self.wi(self.norm2(x))))


class T5(nn.Module):
    def __init__(self, layers=2, width=16, heads=2, vocab=29, rows=10):
        super().__init__()
        self.tokens, self.bias = nn.Embedding(vocab, width), nn.Embedding(2 * rows, heads)
        self.blocks = nn.ModuleList(T5Block(width, heads) for _ in range(layers))
        self.norm, self.head = T5Norm(width), nn.Linear(width, vocab, bias=False)
        self.policy = {"kind": "none"}

    def forward(self, ids):
        rows = ids.shape[1]
        x = self.tokens(ids)
        place = torch.arange(rows)
        distance = place[None, :] - place[:, None] + rows
        bias = self.bias(distance).permute(2, 0, 1).unsqueeze(0)
        return self.head(self.norm(run_blocks(self.blocks, x, self.policy, bias)))


class ViewsBlock(nn.Module):
    """Writes in place, and parts of a split that nobody reads."""

    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        a, _, c = self.up(x).chunk(3, dim=-1)
        h = F.relu(self.down(a), inplace=True)
        h = h * torch.sigmoid(c)
        h += x
        return h


class Views(nn.Module):
    def __init__(self, layers=4, width=12):
        super().__init__()
        self.blocks = nn.ModuleList(ViewsBlock(width) for _ in range(layers))
        self.policy = {"kind": "none"}

    def forward(self, x):
        return run_blocks(self.blocks, x, self.policy)
