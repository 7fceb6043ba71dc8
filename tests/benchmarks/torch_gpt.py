"""The GPT of examples/char_gpt/gpt.cc in PyTorch, for packages that work on a torch.nn.Module."""

import math

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.projection = nn.Linear(width, width, bias=False)
        self.mlp_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def attention(self, qkv, mask):
        batch, time, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
        head_width = width // self.heads
        split = qkv.view(batch, time, 3, self.heads, head_width).permute(2, 0, 3, 1, 4)
        q, k, v = split.reshape(3, batch * self.heads, time, head_width).unbind(0)
        scores = torch.baddbmm(mask, q, k.transpose(1, 2), alpha=1 / math.sqrt(head_width))
        out = torch.bmm(torch.softmax(scores, -1), v)
        return out.view(batch, self.heads, time, head_width).transpose(1, 2).reshape(batch, time, width)

    def forward(self, x, mask):
        h = x + self.projection(self.attention(self.qkv(self.attention_norm(x)), mask))
        return h + self.down(nn.functional.gelu(self.up(self.mlp_norm(h))))


class Gpt(nn.Module):
    """Built from the weights themselves, by the names that the C++ model gives them."""

    def __init__(self, weights, heads):
        super().__init__()
        vocabulary, width = weights["characters.weight"].shape
        length = weights["positions.weight"].shape[0]
        self.characters = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.layers = len({name.split(".")[0] for name in weights if name.startswith("blocks_")})
        for i in range(self.layers):
            self.add_module(f"blocks_{i}", Block(width, heads))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("mask", torch.full((length, length), -math.inf).triu(1), persistent=False)
        self.load_state_dict(weights)

    def forward(self, x):
        h = self.characters(x) + self.positions.weight
        for i in range(self.layers):
            h = getattr(self, f"blocks_{i}")(h, self.mask)
        return self.head(self.norm(h))

    def loss(self, batch):
        x, y = batch
        return nn.functional.cross_entropy(self(x).flatten(0, 1), y.flatten())
