#!/usr/bin/env python3
"""The same models in PyTorch, as fair a peer as we know how to make: scaled_dot_product_attention,
fused AdamW where there is one, optional torch.compile, threads set. Prints one JSON line.

    peer_torch.py --preset 60m --batch 8 --block 256 --steps 5 [--compile] [--coupling euler]
    peer_torch.py --preset nano --batch 12 --block 64 --steps 300 --data input.txt
"""
import argparse
import json
import math
import resource
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

#            family, layers, width, heads, d_ff, vocabulary
PRESETS = {
    "tiny": ("llama", 2, 64, 2, 256, 256),
    "small": ("llama", 4, 256, 4, 1024, 256),
    "nano": ("gpt2", 4, 128, 4, 512, 256),
    "60m": ("llama", 8, 512, 8, 2048, 50257),
}


def rotate(x, table):
    a, b = x.chunk(2, -1)
    cos, sin = table
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Attention(nn.Module):
    def __init__(self, width, heads, coupling, steps, hidden=8):
        super().__init__()
        self.heads, self.coupling, self.steps = heads, coupling, steps
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        if coupling == "euler":
            d = width // heads
            self.w1 = nn.Parameter(torch.randn(heads, d, hidden) * 0.02)
            self.w2 = nn.Parameter(torch.randn(heads, hidden, d) * 0.02)
            self.dt = nn.Parameter(torch.full((heads, 1, 1), 0.1))

    def forward(self, x, table):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.heads, -1).transpose(1, 2) for t in self.qkv(x).split(C, 2))
        if self.coupling == "euler":
            for _ in range(self.steps):
                q, k = q + self.dt * k, k + self.dt * (F.silu(q @ self.w1) @ self.w2)
        if table is not None:
            q, k = rotate(q, table), rotate(k, table)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(B, T, C))


class Mlp(nn.Module):
    def __init__(self, width, hidden, swiglu):
        super().__init__()
        self.swiglu = swiglu
        self.up = nn.Linear(width, hidden * (2 if swiglu else 1), bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        h = self.up(x)
        if self.swiglu:
            gate, up = h.chunk(2, -1)
            return self.down(F.silu(gate) * up)
        return self.down(F.gelu(h))


class Model(nn.Module):
    def __init__(self, a):
        super().__init__()
        family, layers, width, heads, d_ff, vocab = PRESETS[a.preset]
        llama = family == "llama"
        norm = (lambda: nn.RMSNorm(width, eps=1e-5)) if llama else (lambda: nn.LayerNorm(width, bias=False))
        self.tokens = nn.Embedding(vocab, width)
        self.positions = None if llama else nn.Embedding(a.block, width)
        self.norm1 = nn.ModuleList(norm() for _ in range(layers))
        self.attn = nn.ModuleList(Attention(width, heads, a.coupling, a.coupling_steps) for _ in range(layers))
        self.norm2 = nn.ModuleList(norm() for _ in range(layers))
        self.mlp = nn.ModuleList(Mlp(width, d_ff, llama) for _ in range(layers))
        self.norm = norm()
        d = width // heads
        angle = torch.outer(torch.arange(a.block).float(), 10000 ** (-torch.arange(0, d, 2).float() / d))
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())
        for name, p in self.named_parameters():
            if p.ndim >= 2 and "w1" not in name and "w2" not in name:
                nn.init.normal_(p, std=0.02 / (math.sqrt(2 * layers) if "out." in name or "down." in name else 1))

    def forward(self, ids, targets):
        T = ids.shape[1]
        x = self.tokens(ids)
        table = (self.cos[:T], self.sin[:T]) if self.positions is None else None
        if self.positions is not None:
            x = x + self.positions.weight[:T]
        for n1, attn, n2, mlp in zip(self.norm1, self.attn, self.norm2, self.mlp):
            x = x + attn(n1(x), table)
            x = x + mlp(n2(x))
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--preset", choices=sorted(PRESETS), default="nano")
    p.add_argument("--batch", type=int, default=12)
    p.add_argument("--block", type=int, default=64)
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--warmup", type=int, default=3)
    p.add_argument("--coupling", choices=["none", "euler"], default="none")
    p.add_argument("--coupling_steps", type=int, default=1)
    p.add_argument("--compile", action="store_true")
    p.add_argument("--fused", action="store_true", help="fused AdamW")
    p.add_argument("--data", help="text; random tokens without it")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    torch.manual_seed(a.seed)
    torch.set_num_threads(a.threads)
    model = Model(a)
    run = torch.compile(model) if a.compile else model
    decayed = [q for q in model.parameters() if q.ndim >= 2]
    others = [q for q in model.parameters() if q.ndim < 2]
    opt = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                            lr=1e-3, betas=(0.9, 0.99), fused=True if a.fused else None)
    vocab = PRESETS[a.preset][-1]
    text = torch.frombuffer(bytearray(open(a.data, "rb").read()), dtype=torch.uint8).long() if a.data else \
        torch.randint(0, vocab, (200_000,))
    seconds, losses = [], []
    for step in range(a.warmup + a.steps):
        start = torch.randint(0, len(text) - a.block - 1, (a.batch,))
        x = torch.stack([text[i: i + a.block] for i in start])
        y = torch.stack([text[i + 1: i + a.block + 1] for i in start])
        begin = time.perf_counter()
        opt.zero_grad(set_to_none=True)
        loss = run(x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        losses.append(loss.item())
        if step >= a.warmup:
            seconds.append(time.perf_counter() - begin)
    step_s = statistics.median(seconds)
    print(json.dumps(dict(
        torch=torch.__version__, preset=a.preset, coupling=a.coupling, compile=a.compile, fused=a.fused,
        params=sum(q.numel() for q in model.parameters()), step_ms=round(step_s * 1e3, 3),
        tok_per_sec=round(a.batch * a.block / step_s, 1), total_s=round(sum(seconds), 2),
        peak_rss_mib=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        loss_first=round(losses[0], 4), loss_last=round(losses[-1], 4))))


if __name__ == "__main__":
    main()
