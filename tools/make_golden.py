#!/usr/bin/env python3
"""Makes tests/golden/*.safetensors with PyTorch as the referee. Needs torch and safetensors; not part
of the tests, which only read the files:

    python3 -m venv /tmp/referee && /tmp/referee/bin/pip install torch safetensors numpy
    /tmp/referee/bin/python tools/make_golden.py

ops.safetensors: for each entry NAME of the op table, f64 tensors NAME.in0.., NAME.out0.., NAME.cot0..
(the cotangents) and NAME.grad0.. (the gradients of sum(out * cot)).
tiny_*.safetensors: initial weights of two tiny models, ten batches of tokens, and the ten losses that
AdamW gives in float64; the settings stand in the metadata.
"""
import json
import math
import os
from functools import partial

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

torch.set_default_dtype(torch.float64)
OUT = os.path.join(os.path.dirname(__file__), "..", "tests", "golden")


# ---------------------------------------------------------------- references, straight from formulas

def rms_norm(x, w, eps=1e-5):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w


def rope(x, position=0, theta=10000.0):
    """x [B, T, H, D]; pairs (i, i + D/2)."""
    T, D = x.shape[1], x.shape[3]
    inv = theta ** (-torch.arange(0, D, 2).double() / D)
    angle = torch.outer(torch.arange(position, position + T).double(), inv)
    cos, sin = angle.cos()[None, :, None, :], angle.sin()[None, :, None, :]
    a, b = x[..., : D // 2], x[..., D // 2:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def attention(q, k, v, causal=True):
    """[B, T, H, D] layout; key heads are shared by consecutive query heads."""
    group = q.shape[2] // k.shape[2]
    k, v = k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)
    s = torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(q.shape[-1])
    if causal:
        i = torch.arange(q.shape[1])[:, None] + k.shape[1] - q.shape[1]
        s = s.masked_fill(torch.arange(k.shape[1])[None, :] > i, float("-inf"))
    return torch.einsum("bhij,bjhd->bihd", s.softmax(-1), v)


def coupling_net(w1, w2, x):
    """W2 silu(W1 x), one net per head: [B, T, G, D] -> [B, T, G, outputs]."""
    return torch.einsum("goh,btgh->btgo", w2, F.silu(torch.einsum("ghd,btgd->btgh", w1, x)))


def coupling(kind, q, k, w1, w2, dt, steps=1):
    """arXiv 2604.01683, one net per key head; grouped queries act by their mean and move as one."""
    group = q.shape[2] // k.shape[2]
    dt = dt[:, None]
    mean = lambda q: q.unflatten(2, (k.shape[2], group)).mean(3)
    wide = lambda x: x.repeat_interleave(group, 2)
    f = lambda x: coupling_net(w1, w2, x)
    for _ in range(steps):
        if kind == "euler":
            q, k = q + wide(dt * k), k + dt * f(mean(q))
        elif kind == "leapfrog":
            k = k + dt / 2 * f(mean(q))
            q = q + wide(dt * k)
            k = k + dt / 2 * f(mean(q))
        elif kind == "symplectic_euler":
            k = k + dt * f(mean(q))
            q = q + wide(dt * k)
        elif kind == "uncoupled":
            q = q + wide(dt * f(mean(q)))
        else:
            k = k + dt * f(k)
    return q, k


def coupling_affine(q, k, w1, w2, steps=1):
    """w1 [G, 2, h, D], w2 [G, 2, 2 D, h]: net 0 moves k, net 1 moves q; s = tanh of the first D outputs."""
    group = q.shape[2] // k.shape[2]

    def moved(y, net, x, copies=1):
        s, t = coupling_net(w1[:, net], w2[:, net], x).chunk(2, -1)
        s, t = s.tanh().repeat_interleave(copies, 2), t.repeat_interleave(copies, 2)
        return y * s.exp() + t

    for _ in range(steps):
        k = moved(k, 0, q.unflatten(2, (k.shape[2], group)).mean(3))
        q = moved(q, 1, k, group)
    return q, k


def coupling_potential(q, k, w1, w2, dt, steps=1):
    """Leapfrog with f = -dU/dx, U(x) = w2 silu(w1 x), by torch's own double backward."""
    group = q.shape[2] // k.shape[2]
    dt = dt[:, None]

    def force(x):
        return -torch.autograd.grad(coupling_net(w1, w2, x).sum(), x, create_graph=True)[0]

    for _ in range(steps):
        k = k + dt / 2 * force(q.unflatten(2, (k.shape[2], group)).mean(3))
        q = q + (dt * k).repeat_interleave(group, 2)
        k = k + dt / 2 * force(q.unflatten(2, (k.shape[2], group)).mean(3))
    return q, k


def fixed_ids(n, modulus):
    """The integer inputs of the table: tests/ops builds the same ones."""
    return torch.tensor([(i * 7 + 3) % modulus for i in range(n)])


# ---------------------------------------------------------------------------------------- op entries

def op_entries():
    g = torch.Generator().manual_seed(2604_01683)

    def r(*shape, low=-2.0, high=2.0):
        return torch.rand(*shape, generator=g) * (high - low) + low

    yield "add", [r(3, 5), r(3, 5)], lambda a, b: a + b
    yield "add_broadcast", [r(4, 1, 3), r(2, 1)], lambda a, b: a + b
    yield "mul", [r(3, 5), r(3, 5)], lambda a, b: a * b
    yield "mul_broadcast", [r(4, 1, 3), r(2, 1)], lambda a, b: a * b
    yield "scale", [r(3, 5)], lambda x: x * 0.75
    yield "silu", [r(3, 17, low=-6, high=6)], F.silu
    yield "gelu", [r(3, 17, low=-6, high=6)], F.gelu
    yield "gelu_tanh", [r(3, 17, low=-6, high=6)], lambda x: F.gelu(x, approximate="tanh")
    yield "swiglu", [r(3, 2, 10)], lambda x: F.silu(x[..., :5]) * x[..., 5:]
    yield "softmax", [r(3, 4, 9)], lambda x: x.softmax(-1)
    yield "layer_norm", [r(3, 4, 9), r(9), r(9)], lambda x, w, b: F.layer_norm(x, (9,), w, b, 1e-5)
    yield "layer_norm_no_bias", [r(3, 4, 9), r(9)], lambda x, w: F.layer_norm(x, (9,), w, None, 1e-5)
    yield "rms_norm", [r(3, 4, 9), r(9)], rms_norm
    yield "sum", [r(3, 4, 5)], lambda x: x.sum()
    yield "sum_dims", [r(3, 4, 5)], lambda x: x.sum((0, 2))
    yield "mean", [r(3, 4, 5)], lambda x: x.mean()
    yield "matmul", [r(3, 7), r(7, 5)], torch.matmul
    yield "matmul_batched", [r(2, 1, 3, 7), r(4, 7, 5)], torch.matmul
    yield "linear", [r(2, 3, 7), r(5, 7)], lambda x, w: F.linear(x, w)
    yield "linear_bias", [r(2, 3, 7), r(5, 7), r(5)], F.linear
    yield "embedding", [r(11, 6)], lambda w: F.embedding(fixed_ids(10, 11), w)
    yield "rope", [r(2, 5, 3, 8)], rope
    yield "attention", [r(2, 7, 3, 8), r(2, 7, 3, 8), r(2, 7, 3, 8)], attention
    yield "attention_gqa", [r(2, 7, 4, 8), r(2, 7, 2, 8), r(2, 7, 2, 8)], attention
    yield "attention_dv", [r(2, 5, 2, 8), r(2, 7, 2, 8), r(2, 7, 2, 12)], attention
    pair = lambda hq, hk, h: [r(2, 5, hq, 8), r(2, 5, hk, 8), r(hk, h, 8, low=-1, high=1),
                              r(hk, 8, h, low=-1, high=1), r(hk, low=0.05, high=0.5)]
    euler = partial(coupling, "euler")
    yield "coupling_euler", pair(2, 2, 4), euler
    yield "coupling_euler_gqa", pair(4, 2, 4), euler
    yield "coupling_euler_steps3", pair(2, 2, 4), partial(euler, steps=3)

    def targets(n, v):
        t = fixed_ids(n, v)
        t[1] = -100
        return t

    yield "cross_entropy", [r(6, 9)], lambda x: F.cross_entropy(x, targets(6, 9))
    yield "linear_cross_entropy", [r(6, 8), r(9, 8)], lambda x, w: F.cross_entropy(x @ w.T, targets(6, 9))
    yield "reshape", [r(3, 4)], lambda x: x.reshape(2, 6)
    yield "transpose", [r(3, 4, 2)], lambda x: x.transpose(0, 1)
    yield "slice", [r(3, 9)], lambda x: x[:, 1:8:2]
    yield "cat", [r(3, 4), r(3, 2)], lambda a, b: torch.cat([a, b], 1)
    yield "sub", [r(3, 5), r(3, 5)], lambda a, b: a - b
    yield "exp", [r(3, 17, low=-6, high=6)], torch.exp
    yield "sigmoid", [r(3, 17, low=-6, high=6)], torch.sigmoid
    yield "diff_combine", [r(2, 5, 3, 8), r(2, 5, 3, 8), r(())], lambda a, b, l: a - l * b
    yield "diff_combine_heads", [r(2, 5, 3, 8), r(2, 5, 3, 8), r(2, 5, 3)], lambda a, b, l: a - l[..., None] * b
    # Below, so that the numbers of the entries above stay what they were.
    affine_pair = lambda hq, hk, h: [r(2, 5, hq, 8), r(2, 5, hk, 8), r(hk, 2, h, 8, low=-1, high=1),
                                     r(hk, 2, 16, h, low=-1, high=1)]
    for kind in ["leapfrog", "symplectic_euler", "uncoupled", "uncoupled_k", "affine"]:
        f = coupling_affine if kind == "affine" else partial(coupling, kind)
        inputs = affine_pair if kind == "affine" else pair
        yield f"coupling_{kind}", inputs(2, 2, 4), f
        yield f"coupling_{kind}_gqa", inputs(4, 2, 4), f
        yield f"coupling_{kind}_steps3", inputs(2, 2, 4), partial(f, steps=3)
    potential_pair = lambda hq, hk, h: [r(2, 5, hq, 8), r(2, 5, hk, 8), r(hk, h, 8, low=-1, high=1),
                                        r(hk, 1, h, low=-1, high=1), r(hk, low=0.05, high=0.3)]
    name = "coupling_hamiltonian_potential"
    yield name, potential_pair(2, 2, 4), coupling_potential
    yield f"{name}_gqa", potential_pair(4, 2, 4), coupling_potential
    yield f"{name}_steps3", potential_pair(2, 2, 4), partial(coupling_potential, steps=3)

    def add_norm(norm):
        return lambda x, delta, *weights: (x + delta, norm(x + delta, *weights))

    layer_norm = lambda x, w, b=None: F.layer_norm(x, (9,), w, b, 1e-5)
    rows = lambda: [r(3, 4, 9), r(3, 4, 9)]
    yield "add_rms_norm", [*rows(), r(9)], add_norm(rms_norm)
    yield "add_layer_norm", [*rows(), r(9), r(9)], add_norm(layer_norm)
    yield "add_layer_norm_no_bias", [*rows(), r(9)], add_norm(layer_norm)


def make_ops():
    g = torch.Generator().manual_seed(1)
    tensors = {}
    for name, inputs, f in op_entries():
        inputs = [x.requires_grad_() for x in inputs]
        outputs = f(*inputs)
        outputs = list(outputs) if isinstance(outputs, tuple) else [outputs]
        cotangents = [torch.randn(o.shape, generator=g) for o in outputs]
        grads = torch.autograd.grad(outputs, inputs, cotangents)
        for kind, values in (("in", inputs), ("out", outputs), ("cot", cotangents), ("grad", grads)):
            for i, value in enumerate(values):
                tensors[f"{name}.{kind}{i}"] = value.detach().clone().contiguous()
    save_file(tensors, os.path.join(OUT, "ops.safetensors"))


# ------------------------------------------------------------------------------------ whole models

def make_weights(c):
    """Weights under the runtime's own names; not its initialisation: any values will do."""
    g = torch.Generator().manual_seed(c["seed"])
    C, D, Hq, Hk, Fw = c["n_embd"], c["n_embd"] // c["n_head"], c["n_head"], c["n_kv_head"], c["d_ff"]
    w = {}

    def normal(name, *shape, std=0.05):
        w[name] = (torch.randn(*shape, generator=g) * std).float().double()

    gpt2 = c["family"] == "gpt2"

    def norm(name):
        w[name + ".weight"] = (1 + torch.randn(C, generator=g) * 0.1).float().double()
        if gpt2:
            normal(name + ".bias", C)

    def linear(name, rows, columns):
        normal(name + ".weight", rows, columns)
        if gpt2:
            normal(name + ".bias", rows)

    normal("embedding.weight", c["vocab_size"], C, std=0.2)
    if gpt2:
        normal("positions.weight", c["block_size"], C, std=0.1)
    for i in range(c["n_layer"]):
        b = f"blocks.{i}."
        norm(b + "attn_norm")
        linear(b + "attn.q_proj", Hq * D, C)
        linear(b + "attn.k_proj", Hk * D, C)
        linear(b + "attn.v_proj", Hk * D, C)
        linear(b + "attn.o_proj", C, C)
        if c["coupling"] == "euler":
            normal(b + "attn.coupling.w1", Hk, c["coupling_hidden"], D, std=0.5)
            normal(b + "attn.coupling.w2", Hk, D, c["coupling_hidden"], std=0.5)
            w[b + "attn.coupling.dt"] = torch.full((Hk,), 0.1).float().double()
        norm(b + "mlp_norm")
        if c["activation"] == "swiglu":
            linear(b + "mlp.gate_proj", Fw, C)
        linear(b + "mlp.up_proj", Fw, C)
        linear(b + "mlp.down_proj", C, Fw)
    norm("final_norm")
    return w


def model_loss(c, w, ids, targets):
    B, T = ids.shape
    Hq, Hk, D = c["n_head"], c["n_kv_head"], c["n_embd"] // c["n_head"]
    gpt2 = c["family"] == "gpt2"
    norm = lambda x, n: (F.layer_norm(x, x.shape[-1:], w[n + ".weight"], w[n + ".bias"], 1e-5)
                         if gpt2 else rms_norm(x, w[n + ".weight"]))
    linear = lambda x, n: F.linear(x, w[n + ".weight"], w.get(n + ".bias"))
    x = F.embedding(ids, w["embedding.weight"])
    if gpt2:
        x = x + w["positions.weight"][:T]
    for i in range(c["n_layer"]):
        b = f"blocks.{i}."
        h = norm(x, b + "attn_norm")
        q, k, v = (linear(h, f"{b}attn.{n}_proj").unflatten(-1, (-1, D)) for n in "qkv")
        if c["coupling"] == "euler":
            q, k = coupling("euler", q, k, w[b + "attn.coupling.w1"], w[b + "attn.coupling.w2"],
                            w[b + "attn.coupling.dt"], c["coupling_steps"])
        if not gpt2:
            q, k = rope(q), rope(k)
        x = x + linear(attention(q, k, v).flatten(2), b + "attn.o_proj")
        h = norm(x, b + "mlp_norm")
        up = linear(h, b + "mlp.up_proj")
        act = (F.silu(linear(h, b + "mlp.gate_proj")) * up if c["activation"] == "swiglu"
               else F.gelu(up, approximate="tanh" if c["activation"] == "gelu_tanh" else "none"))
        x = x + linear(act, b + "mlp.down_proj")
    logits = norm(x, "final_norm") @ w["embedding.weight"].T
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def make_model(name, c):
    steps, batch = 10, 3
    w = {k: v.requires_grad_() for k, v in make_weights(c).items()}
    initial = {k: v.detach().float() for k, v in w.items()}
    g = torch.Generator().manual_seed(5)
    tokens = torch.randint(0, c["vocab_size"], (steps, batch, c["block_size"] + 1), generator=g)
    decayed = [v for v in w.values() if v.ndim >= 2]
    others = [v for v in w.values() if v.ndim < 2]
    opt = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1},
                             {"params": others, "weight_decay": 0.0}],
                            lr=1e-2, betas=(0.9, 0.95), eps=1e-8)
    losses, norms = [], []
    for step in range(steps):
        loss = model_loss(c, w, tokens[step, :, :-1], tokens[step, :, 1:])
        opt.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(list(w.values()), 1.0).item())
        opt.step()
        losses.append(loss.item())
    print(name, losses)
    out = dict(initial)
    out["tokens"] = tokens.to(torch.int32)
    out["losses"] = torch.tensor(losses)
    out["grad_norms"] = torch.tensor(norms)
    meta = {"config": json.dumps(c), "optimizer": json.dumps(
        dict(lr=1e-2, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, grad_clip=1.0))}
    save_file(out, os.path.join(OUT, name + ".safetensors"), metadata=meta)


def main():
    os.makedirs(OUT, exist_ok=True)
    make_ops()
    shape = dict(n_layer=2, n_head=4, n_embd=32, block_size=12, vocab_size=48)
    make_model("tiny_llama", dict(shape, family="llama", n_kv_head=2, d_ff=48, activation="swiglu",
                                  coupling="euler", coupling_steps=2, coupling_hidden=4, seed=11))
    make_model("tiny_gpt2", dict(shape, family="gpt2", n_kv_head=4, d_ff=64, activation="gelu_tanh",
                                 coupling="none", coupling_steps=1, coupling_hidden=4, seed=12))


if __name__ == "__main__":
    main()
