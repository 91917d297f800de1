#!/usr/bin/env python3
"""Makes tests/golden/diagnostics.safetensors with numpy as the referee: causal attention maps, the
difference of two of them, the measures of each; and of a few residual streams. All f64. For each map
NAME: NAME.map [T, T], NAME.spectrum (effective rank, sigma1 - sigma2, sigma2 / sigma1), NAME.rows
(entropy, normalised entropy, sink mass); for each stream NAME: NAME.x [T, C], NAME.spread (collapse,
mean pairwise cosine). Needs numpy and safetensors.
"""
import os

import numpy as np
from safetensors.numpy import save_file

OUT = os.path.join(os.path.dirname(__file__), "..", "tests", "golden")


def causal_map(q, k):
    scores = q @ k.T / np.sqrt(q.shape[1])
    scores[np.triu_indices(len(q), 1)] = -np.inf
    e = np.exp(scores - scores.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def spectrum(a):
    s = np.linalg.svd(a, compute_uv=False)
    p = s[s > 0] / s.sum()
    return np.array([np.exp(-(p * np.log(p)).sum()), s[0] - s[1], s[1] / s[0]])


def rows(a):
    logs = np.zeros_like(a)
    np.log(a, where=a > 0, out=logs)
    entropy = -(a * logs).sum(1)
    normalised = entropy[1:] / np.log(np.arange(2, len(a) + 1))
    return np.array([entropy.mean(), normalised.mean(), a[:, 0].mean()])


def spread(x):
    collapse = np.linalg.norm(x - x.mean(0)) / np.linalg.norm(x)
    u = x / np.linalg.norm(x, axis=1, keepdims=True)
    cosines = (u @ u.T)[~np.eye(len(x), dtype=bool)]
    return np.array([collapse, cosines.mean()])


def main():
    rng = np.random.default_rng(7)
    tensors = {}

    def add_map(name, a):
        tensors.update({f"{name}.map": a, f"{name}.spectrum": spectrum(a), f"{name}.rows": rows(np.abs(a))})

    soft = causal_map(rng.normal(size=(40, 8)), rng.normal(size=(40, 8)))
    sharp = causal_map(6 * rng.normal(size=(33, 8)), 6 * rng.normal(size=(33, 8)))
    other = causal_map(rng.normal(size=(40, 8)), rng.normal(size=(40, 8)))
    add_map("soft", soft)
    add_map("sharp", sharp)
    add_map("uniform", np.tril(np.ones((16, 16))) / np.arange(1, 17)[:, None])
    add_map("sink", np.eye(12)[np.zeros(12, dtype=int)])  # every row looks at token 0: rank one
    add_map("identity", np.eye(12))
    difference = soft - rng.uniform(0.1, 0.9, (40, 1)) * other
    tensors.update({"difference.map": difference, "difference.spectrum": spectrum(difference)})
    base = rng.normal(size=8)
    for name, x in {"random": rng.normal(size=(20, 8)), "collapsed": base + 1e-3 * rng.normal(size=(20, 8)),
                    "shifted": base + rng.normal(size=(20, 8))}.items():
        tensors.update({f"{name}.x": x, f"{name}.spread": spread(x)})
    save_file({n: np.ascontiguousarray(t) for n, t in tensors.items()},
              os.path.join(OUT, "diagnostics.safetensors"))


if __name__ == "__main__":
    main()
