#!/usr/bin/env bash
# One command for a machine with a GPU: what holds there, and how fast it is, in at most 8 minutes.
# Each phase appends a line to a JSON-lines file as it ends, so that a run that is cut loses nothing;
# a table comes last.
#   tools/gpu_check.sh [--build DIR] [--out FILE] [--seconds N] [--sim]
#     --build DIR   a build that is there already (DUET_CUDA=ON), instead of build-gpu made here
#     --seconds N   phases that would begin later than this are left out, and said to be (480)
#     --sim         a dry run of this script on the simulated GPU: what needs hardware is skipped
set -uo pipefail
cd "$(dirname "$0")/.."
build="" out=gpu_check.jsonl seconds=480 sim=0
while [ $# -gt 0 ]; do
  case "$1" in
    --build) build=$2; shift ;;
    --out) out=$2; shift ;;
    --seconds) seconds=$2; shift ;;
    --sim) sim=1 ;;
    *) echo "gpu_check.sh: no such option: $1" >&2; exit 2 ;;
  esac
  shift
done
prebuilt=$build
[ -n "$build" ] || build=$([ $sim = 1 ] && echo build-sim || echo build-gpu)
: >"$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# phase NAME FUNCTION: runs it with its output in $work/NAME; a line of results of its own stands in
# $work/NAME.json. 77: skipped, with the reason as the output's last line.
phase() {
  local name=$1 begin status result note
  if [ $SECONDS -ge "$seconds" ]; then
    status=77
    echo "left out: $SECONDS s had gone by" >"$work/$name"
    begin=$SECONDS
  else
    begin=$SECONDS
    "$2" >"$work/$name" 2>&1
    status=$?
  fi
  result=ok
  [ $status = 0 ] || result=failed
  [ $status = 77 ] && result=skipped
  [ $result = failed ] && failures=$((failures + 1))
  note=$(tail -n 1 "$work/$name")
  python3 - "$name" "$result" $((SECONDS - begin)) "$note" "$work/$name" >>"$out" <<'PYTHON'
import json, os, sys
name, result, seconds, note, path = sys.argv[1:]
line = {"phase": name, "result": result, "seconds": int(seconds), "note": note[:300]}
if os.path.exists(path + ".json"):
    with open(path + ".json") as f:
        line["data"] = json.load(f)
if result == "failed":
    with open(path, errors="replace") as f:
        line["log"] = f.read()[-4000:]
print(json.dumps(line))
PYTHON
  printf '%-14s %-8s %4s s  %s\n' "$name" "$result" $((SECONDS - begin)) "$note"
}

environment() {
  if [ $sim = 0 ]; then
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv,noheader ||
      return 1
  fi
  { nvcc --version || true; g++ --version; cmake --version; nproc; } 2>/dev/null | grep .
  git rev-parse HEAD 2>/dev/null || true
}

build_all() {
  if [ -n "$prebuilt" ]; then
    echo "prebuilt: $build"
    return 0
  fi
  local mode=ON target="duet cuda_tests"
  [ $sim = 1 ] && mode=SIM
  cmake -S . -B "$build" -G Ninja -DDUET_CUDA=$mode -DCMAKE_CUDA_ARCHITECTURES=90a-real &&
    # shellcheck disable=SC2086
    cmake --build "$build" -j "$(nproc)" --target $target
}

doctor() { "$build/duet" doctor; }

# A skip is a failure. In the dry run one suite shows that the phase works.
gpu_tests() {
  local filter='*'
  [ $sim = 1 ] && filter='CudaOps.*:Table/CudaOps.*/silu:CudaHarness.*'
  (cd "$build" && DUET_REQUIRE_CUDA=1 timeout 200 ./cuda_tests --gtest_filter="$filter" \
    --gtest_brief=1 --gtest_output="json:$work/gpu_tests.full")
  local status=$?
  python3 - "$work/gpu_tests" <<'PYTHON' || true
import json, sys
with open(sys.argv[1] + ".full") as f:
    tests = json.load(f)
bad = [s["name"] + "." + t["name"] for s in tests["testsuites"] for t in s["testsuite"]
       if "failures" in t or t.get("result") == "SKIPPED"]
with open(sys.argv[1] + ".json", "w") as f:
    json.dump({"tests": tests["tests"], "failures": tests["failures"], "failed": bad[:40]}, f)
print(f"{tests['tests']} tests, {tests['failures']} failed" + (": " + " ".join(bad[:5]) if bad else ""))
PYTHON
  return $status
}

# The first row of each op, values and gradients once: the smallest case of each kernel.
sanitizer() {
  local tool
  tool=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
  [ -x "$tool" ] || { echo "there is no compute-sanitizer"; return 77; }
  [ $sim = 0 ] || { echo "the simulator is its own sanitizer"; return 77; }
  local rows
  rows=$("$build/duet" op list | awk 'NR > 1 && /cuda/ { printf "%s*/CudaOps.EveryOrder*/%s", s, $1; s = ":" }')
  (cd "$build" && timeout 100 "$tool" --tool memcheck --error-exitcode 9 ./cuda_tests \
    --gtest_brief=1 --gtest_filter="$rows") || return 1
  (cd "$build" && timeout 60 "$tool" --tool racecheck --error-exitcode 9 ./cuda_tests \
    --gtest_brief=1 --gtest_filter='*/CudaOps.EveryOrder*/softmax:*/CudaOps.EveryOrder*/attention')
}

# A large copy and a large product, and a step of the small model beside them.
speed() {
  local size="--preset small --batch_size 16 --steps 20 --warmup 5"
  [ $sim = 1 ] && size="--preset tiny --n_layer 1 --n_embd 16 --block_size 8 --batch_size 1 --steps 1 --warmup 0"
  # shellcheck disable=SC2086
  timeout 120 "$build/duet" bench train $size --device cuda --json "$work/speed.json"
}
coupling_cost() {
  local size="--preset small --batch_size 16 --steps 10 --warmup 3"
  [ $sim = 1 ] && size="--preset tiny --n_layer 1 --n_embd 16 --block_size 8 --batch_size 1 --steps 1 --warmup 0"
  # shellcheck disable=SC2086
  timeout 120 "$build/duet" bench train $size --device cuda --coupling euler \
    --against coupling=none --json "$work/coupling_cost.json" | grep against
}
launches() {
  local size="--preset small --batch_size 16"
  [ $sim = 1 ] && size="--preset tiny --n_layer 1 --n_embd 16 --block_size 8 --batch_size 1"
  # shellcheck disable=SC2086
  timeout 60 "$build/duet" profile $size --device cuda --steps 1 --json "$work/profile.full" \
    >"$work/profile.text" || return 1
  sed -n '/^launches/,/^$/p' "$work/profile.text"
  python3 - "$work/profile.full" "$work/launches.json" <<'PYTHON'
import json, sys
with open(sys.argv[1]) as f:
    rows = json.load(f)["rows"]
out = {row["path"] or "whole step": [row[phase + what] for phase in ("forward", "backward", "update")
                                     for what in ("_launches", "_bytes")]
       for row in rows if row["depth"] <= 2}
with open(sys.argv[2], "w") as f:
    json.dump(out, f)
whole = out["whole step"]
print(f"{whole[0]} launches forward, {whole[2]} backward, {whole[4]} update")
PYTHON
}

torch_peer() {
  python3 -c 'import torch' 2>/dev/null || { echo "torch cannot be imported"; return 77; }
  [ $sim = 0 ] || { echo "needs a GPU"; return 77; }
  python3 - "$work/torch_peer.json" <<'PYTHON'
import json, sys, time, torch
if not torch.cuda.is_available():
    print("torch sees no GPU")
    sys.exit(77)
def rate(f, amount, n=20):
    for _ in range(3): f()
    torch.cuda.synchronize(); begin = time.perf_counter()
    for _ in range(n): f()
    torch.cuda.synchronize()
    return amount * n / (time.perf_counter() - begin)
a = torch.randn(8192, 8192, device="cuda")
from_, to = torch.empty(1 << 28, device="cuda"), torch.empty(1 << 28, device="cuda")
out = {"copy_bytes_per_s": rate(lambda: to.copy_(from_), 2 * 4 * (1 << 28)),
       "gemm_f32_flops": rate(lambda: a @ a, 2 * 8192 ** 3)}
b = a.bfloat16()
out["gemm_bf16_flops"] = rate(lambda: b @ b, 2 * 8192 ** 3)
with open(sys.argv[1], "w") as f: json.dump(out, f)
print(", ".join(f"{k} {v:.3g}" for k, v in out.items()))
PYTHON
}

# Instructions that tell whether a kernel does what it should: wide loads, FMA, tensor products.
sass() {
  local tool
  tool=$(command -v cuobjdump || echo /usr/local/cuda/bin/cuobjdump)
  [ -x "$tool" ] || { echo "there is no cuobjdump"; return 77; }
  [ $sim = 0 ] || { echo "the simulated build has no GPU code"; return 77; }
  "$tool" -sass "$build/duet" | python3 -c '
import json, re, sys
counts = {}
for line in sys.stdin:
    found = re.search(r"\b(LDG\.E\.128|LDG\.E|STG\.E\.128|STG\.E|FFMA|HMMA|LDSM|LDGSTS|BAR\.SYNC|STL|LDL)\b", line)
    if found: counts[found[1]] = counts.get(found[1], 0) + 1
json.dump(counts, open(sys.argv[1], "w"))
print(", ".join(f"{k} {v}" for k, v in sorted(counts.items())))' "$work/sass.json"
}

phase environment environment
phase build build_all
phase doctor doctor
phase gpu_tests gpu_tests
phase speed speed
phase coupling_cost coupling_cost
phase launches launches
phase torch_peer torch_peer
phase sass sass
phase sanitizer sanitizer

echo
python3 - "$out" <<'PYTHON'
import json, sys
with open(sys.argv[1]) as f:
    lines = [json.loads(line) for line in f]
for line in lines:
    print(f"{line['phase']:<14} {line['result']:<8} {line['seconds']:>4} s")
    for key, value in list(line.get("data", {}).items())[:8]:
        print(f"    {key:<20} {value if not isinstance(value, float) else f'{value:.4g}'}")
print(f"{sum(l['result'] == 'ok' for l in lines)} ok, {sum(l['result'] == 'failed' for l in lines)} failed, "
      f"{sum(l['result'] == 'skipped' for l in lines)} skipped")
PYTHON
[ $failures = 0 ]
