#!/usr/bin/env python3
"""The dry run of tools/gpu_check.sh on the simulated GPU: every phase runs or says why not.

    gpu_check_test.py BUILD_DIR        exit 77 where the build is not one of the simulator's
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PHASES = ["environment", "build", "doctor", "gpu_tests", "speed", "coupling_cost", "launches",
          "torch_peer", "sass", "sanitizer"]
NEED_HARDWARE = {"torch_peer", "sass", "sanitizer"}


def run(build, out, *more):
    return subprocess.run([ROOT / "tools/gpu_check.sh", "--sim", "--build", build, "--out", out, *more],
                          capture_output=True, text=True)


def main():
    build = Path(sys.argv[1])
    if "DUET_CUDA:STRING=SIM" not in (build / "CMakeCache.txt").read_text():
        print("skipped: not a build with DUET_CUDA=SIM")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "out.jsonl"
        ended = run(build, out)
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        results = {line["phase"]: line for line in lines}
        assert ended.returncode == 0, ended.stdout + ended.stderr + out.read_text()
        assert list(results) == PHASES, results
        for name, line in results.items():
            assert line["result"] == ("skipped" if name in NEED_HARDWARE else "ok"), line
        assert results["gpu_tests"]["data"]["tests"] > 0, results["gpu_tests"]
        assert results["gpu_tests"]["data"]["failures"] == 0
        assert results["speed"]["data"]["tok_per_sec"] > 0
        assert "ratio_median" in results["coupling_cost"]["data"]
        assert ended.stdout.splitlines()[-1] == "7 ok, 0 failed, 3 skipped", ended.stdout
        # Out of time: everything is left out, and said to be.
        ended = run(build, out, "--seconds", "0")
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.splitlines()[-1] == "0 ok, 0 failed, 10 skipped", ended.stdout
        # A phase that fails is a failure of the whole.
        ended = run(Path(directory), out)
        assert ended.returncode == 1, ended.stdout
        assert '"phase": "doctor", "result": "failed"' in out.read_text()
    print("gpu_check.sh: 7 phases ran on the simulated GPU, 3 need hardware")


main()
