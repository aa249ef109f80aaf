"""The blocks of the prior's Transformer: in parallel over all steps, or step by step with a cache.

The cache depends on the sizes. If the heads together are wider than the model (the paper: 16 heads of 64 on width 64),
the products Wq'Wk and WoWv are folded and the normed inputs themselves are cached. That is 32 times less to store and
read than keys and values, and the numbers are the same up to rounding.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    """Causal self-attention. All heads together may be wider than the model."""

    def __init__(self, width: int, heads: int, head_dim: int):
        super().__init__()
        self.heads, self.head_dim = heads, head_dim
        self.qkv = nn.Linear(width, 3 * heads * head_dim, bias=False)
        self.out = nn.Linear(heads * head_dim, width)

    def forward(self, x: Tensor) -> Tensor:
        """(B,S,W) -> (B,S,W)"""
        b, s, _ = x.shape
        q, k, v = self.qkv(x).reshape(b, s, 3, self.heads, self.head_dim).permute(2, 0, 3, 1, 4)  # (B,H,S,d) each
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, s, -1))


class AttentionCache:
    """The cache of one attention layer for the steps so far, and the step that uses it.

    G groups of Q queries share keys and values of dimension d: (H, 1, head_dim) plain, (1, H, width) folded.
    """

    def __init__(self, attention: Attention, batch: int, steps: int):
        heads, d = attention.heads, attention.head_dim
        width = attention.out.out_features
        wq, wk, wv = attention.qkv.weight.reshape(3, heads, d, width)  # (H,d,W) each
        wo = attention.out.weight.reshape(width, heads, d)
        self.folded = heads * d > width
        if self.folded:
            self.query = torch.einsum("hdw,hdv->hvw", wq, wk).reshape(heads * width, width) / math.sqrt(d)
            self.out = torch.einsum("whd,hdv->whv", wo, wv).reshape(width, heads * width)
            self.shape, d = (1, heads), width
        else:
            self.query = wq.reshape(-1, width) / math.sqrt(d)
            self.key, self.value, self.out = wk.reshape(-1, width), wv.reshape(-1, width), attention.out.weight
            self.shape = (heads, 1)
        self.bias = attention.out.bias
        self.keys = wq.new_zeros(batch, self.shape[0], steps, d)  # (B,G,T,d)
        self.values = self.keys if self.folded else torch.zeros_like(self.keys)

    def step(self, x: Tensor, t: int) -> Tensor:
        """Attend from step t to steps 0 .. t: normed inputs (B,W) -> (B,W)"""
        b, d = len(x), self.keys.shape[-1]
        self.keys[:, :, t] = (x if self.folded else F.linear(x, self.key)).reshape(b, -1, d)
        if not self.folded:
            self.values[:, :, t] = F.linear(x, self.value).reshape(b, -1, d)
        q = F.linear(x, self.query).reshape(b, *self.shape, d)  # (B,G,Q,d)
        weights = (q @ self.keys[:, :, : t + 1].mT).softmax(-1)  # (B,G,Q,t+1)
        return F.linear((weights @ self.values[:, :, : t + 1]).reshape(b, -1), self.out, self.bias)

    def reindex(self, index: Tensor) -> None:
        """Give row i of the batch the cache of row index[i]."""
        self.keys = self.keys[index]
        self.values = self.keys if self.folded else self.values[index]


class Block(nn.Module):
    """Pre-norm Transformer block."""

    def __init__(self, width: int, heads: int, head_dim: int, mlp: int, dropout: float):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, head_dim)
        self.mlp = nn.Sequential(nn.Linear(width, mlp), nn.GELU(), nn.Linear(mlp, width))
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop(self.attention(self.norm_1(x)))
        return x + self.drop(self.mlp(self.norm_2(x)))

    def step(self, x: Tensor, cache: AttentionCache, t: int) -> Tensor:
        x = x + cache.step(self.norm_1(x), t)
        return x + self.mlp(self.norm_2(x))


def sinusoids(steps: int, width: int) -> Tensor:
    """The sinusoidal positions of Vaswani et al. for the steps: (T,W)"""
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
    angles = torch.arange(steps)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width]
