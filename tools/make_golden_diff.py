#!/usr/bin/env python3
"""Makes tests/golden/diff_attention.safetensors with PyTorch as the referee: whole attention modules of
differential attention V1 (arXiv 2410.05258) and V2, written from the published formulas with explicit
maps. For each entry NAME: f64 x, out, cot, gx (the gradient of sum(out * cot)), and for each parameter P
w.P and g.P. The configurations stand in the metadata. Needs torch, as make_golden.py does.
"""
import json
import math
import os
from functools import partial

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from make_golden import OUT, coupling, rms_norm, rope

coupling_euler = partial(coupling, "euler")


def causal_map(q, k):
    """softmax(q k^T / sqrt(D)) of one head: [B, T, D], [B, T, D] -> [B, T, T]."""
    t = q.shape[1]
    scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
    return scores.masked_fill(torch.ones(t, t).triu(1).bool(), float("-inf")).softmax(-1)


def diff_v1(c, w, q, k, v):
    """Pair p: query heads p and H/2 + p, key heads likewise, value heads 2p and 2p + 1 side by side."""
    pairs, kv_pairs = c["n_head"] // 2, c["n_kv_head"] // 2
    l = c["layer"] + 1
    init = 0.8 - 0.6 * math.exp(-0.3 * (l - 1))
    lam = (torch.exp((w["diff.lambda_q1"] * w["diff.lambda_k1"]).sum())
           - torch.exp((w["diff.lambda_q2"] * w["diff.lambda_k2"]).sum()) + init)
    heads = []
    for p in range(pairs):
        g = p // (pairs // kv_pairs)
        first = causal_map(q[:, :, p], k[:, :, g])
        second = causal_map(q[:, :, pairs + p], k[:, :, kv_pairs + g])
        value = torch.cat([v[:, :, 2 * g], v[:, :, 2 * g + 1]], -1)
        heads.append(rms_norm((first - lam * second) @ value, w["diff.norm.weight"]) * (1 - init))
    return torch.cat(heads, -1)


def diff_v2(c, w, x, q, k, v):
    """Head h: queries 2h and 2h + 1, both on key/value head h / (H / Hkv)."""
    lam = torch.sigmoid(x @ w["diff.lambda_proj.weight"].T)
    heads = []
    for h in range(c["n_head"]):
        g = h // (c["n_head"] // c["n_kv_head"])
        first, second = causal_map(q[:, :, 2 * h], k[:, :, g]), causal_map(q[:, :, 2 * h + 1], k[:, :, g])
        heads.append(first @ v[:, :, g] - lam[:, :, h, None] * (second @ v[:, :, g]))
    return torch.cat(heads, -1)


def module(c, w, x):
    d = c["n_embd"] // c["n_head"]
    q, k, v = (F.linear(x, w[f"{n}_proj.weight"], w.get(f"{n}_proj.bias")).unflatten(-1, (-1, d))
               for n in "qkv")
    if c["coupling"] == "euler":
        q, k = coupling_euler(q, k, w["coupling.w1"], w["coupling.w2"], w["coupling.dt"],
                              c["coupling_steps"])
    if c["family"] == "llama":
        q, k = rope(q), rope(k)
    mixed = diff_v1(c, w, q, k, v) if c["scoring"] == "diff" else diff_v2(c, w, x, q, k, v)
    return F.linear(mixed, w["o_proj.weight"], w.get("o_proj.bias"))


def weights(c, g):
    width, d = c["n_embd"], c["n_embd"] // c["n_head"]
    rows = {"q": c["n_head"] * d * (2 if c["scoring"] == "diff_v2" else 1),
            "k": c["n_kv_head"] * d, "v": c["n_kv_head"] * d}
    shapes = {f"{n}_proj.weight": (r, width) for n, r in rows.items()}
    shapes["o_proj.weight"] = (width, width)
    if c["family"] == "gpt2":
        shapes |= {f"{n}_proj.bias": (r,) for n, r in rows.items()}
        shapes["o_proj.bias"] = (width,)
    if c["coupling"] == "euler":
        hidden = c["coupling_hidden"]
        shapes |= {"coupling.w1": (c["n_kv_head"], hidden, d), "coupling.w2": (c["n_kv_head"], d, hidden),
                   "coupling.dt": (c["n_kv_head"],)}
    if c["scoring"] == "diff":
        shapes |= {f"diff.lambda_{n}": (d,) for n in ("q1", "k1", "q2", "k2")}
        shapes["diff.norm.weight"] = (2 * d,)
    else:
        shapes["diff.lambda_proj.weight"] = (c["n_head"], width)
    return {n: torch.randn(*s, generator=g) * 0.5 for n, s in shapes.items()}


def main():
    g = torch.Generator().manual_seed(2410_05258)
    shape = dict(n_embd=16, n_head=4, n_kv_head=4, coupling="none", coupling_steps=1, coupling_hidden=3,
                 layer=0)
    entries = {
        "v1_llama": dict(shape, scoring="diff", family="llama", coupling="euler", layer=2),
        "v1_grouped": dict(shape, scoring="diff", family="llama", n_head=8, coupling="euler",
                           coupling_steps=2, n_kv_head=4, layer=1),
        "v1_gpt2": dict(shape, scoring="diff", family="gpt2"),
        "v2_llama": dict(shape, scoring="diff_v2", family="llama", coupling="euler", n_head=2,
                         n_kv_head=2),
        "v2_grouped": dict(shape, scoring="diff_v2", family="gpt2", n_kv_head=2, coupling="euler"),
        "v2_gpt2": dict(shape, scoring="diff_v2", family="gpt2", n_head=2, n_kv_head=1),
    }
    tensors = {}
    for name, c in entries.items():
        w = {n: t.requires_grad_() for n, t in weights(c, g).items()}
        x = torch.randn(2, 7, c["n_embd"], generator=g).requires_grad_()
        out = module(c, w, x)
        cot = torch.randn(out.shape, generator=g)
        gx, *grads = torch.autograd.grad(out, [x, *w.values()], cot)
        tensors |= {f"{name}.x": x, f"{name}.out": out, f"{name}.cot": cot, f"{name}.gx": gx}
        tensors |= {f"{name}.w.{n}": t for n, t in w.items()}
        tensors |= {f"{name}.g.{n}": t for n, t in zip(w, grads)}
    save_file({n: t.detach().clone().contiguous() for n, t in tensors.items()},
              os.path.join(OUT, "diff_attention.safetensors"), metadata={"entries": json.dumps(entries)})


if __name__ == "__main__":
    main()
