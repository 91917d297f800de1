#!/usr/bin/env bash
# Compiles every .cu with nvcc for sm_90a and fails on an error, a warning, or a kernel that spills
# registers to memory. Needs no GPU; skipped (exit 77) without nvcc.
#   tools/check_cuda_build.sh [--list]      --list: registers, shared memory and spills per kernel
set -euo pipefail
cd "$(dirname "$0")/.."
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
if [ ! -x "$nvcc" ]; then
  echo "cuda_build skipped: there is no nvcc; install the CUDA toolkit (nvcc, cudart, cublas)"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export nvcc work

compile() {
  log="$work/$(echo "$1" | tr / _).log"
  "$nvcc" -std=c++20 -O3 -arch=sm_90a --expt-relaxed-constexpr -Werror all-warnings -Xptxas -v \
    -Xcompiler -ffp-contract=off -DDUET_CUDA_BUILD=1 -DDUET_DEVICE_CODE=1 -I. \
    -c "$1" -o "$log.o" >"$log" 2>&1 || { echo "FAILED $1" >>"$log.failed"; }
  rm -f "$log.o"
}
export -f compile
git ls-files -co --exclude-standard -- 'runtime/*.cu' 'ops/*.cu' 'train/*.cu' |
  xargs -P "$(nproc)" -I{} bash -c 'compile {}'

if compgen -G "$work/*.failed" >/dev/null; then
  for failed in "$work"/*.failed; do
    cat "$failed" "${failed%.failed}"
  done
  exit 1
fi
# "Compiling entry function 'NAME'", then "... N bytes spill stores, ...", then "Used N registers".
cat "$work"/*.log | c++filt | awk -v list="${1:-}" '
  /Compiling entry function/ { split($0, part, "\x27"); kernel = part[2] }
  /bytes spill stores/ { match($0, /[0-9]+ bytes spill stores/); spill = substr($0, RSTART) + 0 }
  /Used [0-9]+ registers/ {
    match($0, /Used [0-9]+/); registers = substr($0, RSTART + 5, RLENGTH - 5)
    ++kernels
    if (registers + 0 > most) most = registers + 0
    if (spill > 0) { ++spilling; print "SPILLS " spill " bytes: " kernel }
    if (list == "--list") print registers " registers, spills " spill ": " kernel
  }
  END {
    print kernels + 0 " kernels for sm_90a, at most " most + 0 " registers, " spilling + 0 " spill"
    exit (spilling > 0 || kernels == 0)
  }'
