#!/usr/bin/env python3
"""Duet beside PyTorch on this machine, on random tokens of the whole vocabulary, taken in turn: each
round runs every contestant once, so that a busy minute hits them all; the table gives medians and
the ratio to the fastest PyTorch setting.

    bench_against_torch.py --python /tmp/referee/bin/python --duet build/duet \
        --preset nano --batch 12 --block 64 --steps 200 --rounds 5
    bench_against_torch.py ... --preset 60m --batch 8 --block 256 --steps 2 --rounds 3
    bench_against_torch.py ... --preset 60m --batch 8 --block 256 --steps 2 --rounds 2 --memory

With --memory the figure is the highest resident memory of the process, of `duet profile` with and
without recompute and of PyTorch.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TORCH = {"eager": [], "eager, fused AdamW": ["--fused"], "compiled, fused AdamW": ["--compile", "--fused"]}


def duet_figures(a, command, coupling, more=()):
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "figures.json"
        command = [a.duet, *command, "--preset", a.preset, "--batch_size", str(a.batch), "--block_size", str(a.block),
                   "--coupling", coupling, "--steps", str(a.steps), "--json", str(result), *more]
        if a.preset == "nano":
            command += ["--no-bias", "--activation", "gelu", "--dropout", "0"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"duet failed:\n{done.stderr}")
        return json.loads(result.read_text())


def run_duet(a, coupling):
    figures = duet_figures(a, ["bench", "train"], coupling)
    return figures["tok_per_sec"], figures["peak_rss_bytes"] / 2**20


def compare_memory(a):
    contestants = {f"Duet, recompute {mode}": lambda mode=mode: duet_figures(
        a, ["profile"], "none", ["--recompute", mode])["process"]["peak_bytes"] / 2**20 for mode in ["none", "block"]}
    contestants |= {f"PyTorch {name}": lambda flags=TORCH[name]: run_torch(a, flags, "none")[1] for name in a.only}
    rss = {name: [] for name in contestants}
    for _ in range(a.rounds):
        for name, contest in contestants.items():
            rss[name].append(contest())
    base = statistics.median(rss[f"PyTorch {a.only[0]}"])
    print(f"{a.preset}, batch {a.batch} x {a.block}, {a.rounds} rounds, highest resident memory\n")
    print(f"| | MiB (min..max) | of PyTorch {a.only[0]} |\n|---|---|---|")
    for name, values in rss.items():
        print(f"| {name} | {statistics.median(values):,.0f} ({min(values):,.0f}..{max(values):,.0f}) | "
              f"{statistics.median(values) / base:.2f} |")


def run_torch(a, flags, coupling):
    command = [a.python, str(HERE / "peer_torch.py"), "--preset", a.preset, "--batch", str(a.batch), "--block",
               str(a.block), "--steps", str(a.steps), "--coupling", coupling, *flags]
    env = dict(os.environ, OMP_NUM_THREADS="2")
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode != 0:
        sys.exit(f"torch failed:\n{done.stderr}")
    result = json.loads(done.stdout.splitlines()[-1])
    return result["tok_per_sec"], result["peak_rss_mib"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--python", required=True, help="an interpreter that has torch")
    p.add_argument("--duet", default="build/duet")
    p.add_argument("--preset", default="nano", choices=["nano", "tiny", "small", "60m"])
    p.add_argument("--batch", type=int, default=12)
    p.add_argument("--block", type=int, default=64)
    p.add_argument("--steps", type=int, default=100)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--coupling", action="store_true", help="measure the coupled model too")
    p.add_argument("--only", nargs="*", default=list(TORCH), help="PyTorch settings to run")
    p.add_argument("--memory", action="store_true", help="compare resident memory instead of speed")
    a = p.parse_args()
    if a.memory:
        return compare_memory(a)
    contestants = {"Duet": lambda: run_duet(a, "none")}
    for name in a.only:
        contestants[f"PyTorch {name}"] = lambda flags=TORCH[name]: run_torch(a, flags, "none")
    if a.coupling:
        contestants["Duet, euler"] = lambda: run_duet(a, "euler")
        contestants["PyTorch eager, euler"] = lambda: run_torch(a, [], "euler")
    speed = {name: [] for name in contestants}
    rss = {}
    for _ in range(a.rounds):
        for name, contest in contestants.items():
            tokens, rss[name] = contest()
            speed[name].append(tokens)
    torch_best = max((n for n in speed if n.startswith("PyTorch") and "euler" not in n),
                     key=lambda n: statistics.median(speed[n]))
    print(f"{a.preset}, batch {a.batch} x {a.block}, {a.rounds} rounds; ratio to {torch_best}, within each round\n")
    print("| | tokens/s | ratio (min..max) | peak RSS, MiB |\n|---|---|---|---|")
    for name, values in speed.items():
        ratios = [v / t for v, t in zip(values, speed[torch_best])]
        print(f"| {name} | {statistics.median(values):,.0f} | {statistics.median(ratios):.2f} "
              f"({min(ratios):.2f}..{max(ratios):.2f}) | {rss[name]:,.0f} |")


if __name__ == "__main__":
    main()
