#!/usr/bin/env bash
# Runs the fuzz targets of tests/fuzz one after another, each from real files that this program writes
# first, and each for SECONDS (300). A fault leaves its input in build-fuzz/found; run it again by
#   build-fuzz/state_fuzz build-fuzz/found/state-crash-...
#   tools/fuzz.sh [SECONDS [TARGET...]]      tools/fuzz.sh 60 state trace
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/packages.sh
# shellcheck disable=SC2086
need_packages $BUILD_PACKAGES $TEST_PACKAGES $LINT_PACKAGES
seconds=${1:-300}
targets=("${@:2}")
[ ${#targets[@]} -gt 0 ] || targets=(config lab log manifest safetensors state tokenizer trace)
fuzz=${DUET_FUZZ_BUILD_DIR:-build-fuzz}
build=${DUET_BUILD_DIR:-build}
configure "$fuzz" -DDUET_TESTS=ON -DDUET_FUZZ=ON -DCMAKE_CXX_COMPILER=clang++
cmake --build "$fuzz" -j "$(nproc)" --target fuzz
configure "$build" -DDUET_TESTS=ON
cmake --build "$build" -j "$(nproc)" --target duet

# One seed a target at least: files of two short runs and of an experiment.
duet=$PWD/$build/duet
seeds=$PWD/$fuzz/seeds
rm -rf "$seeds"
mkdir -p "$seeds/work" "$fuzz/found"
for target in "${targets[@]}"; do mkdir -p "$seeds/$target" "$fuzz/corpus/$target"; done
(
  cd "$seeds/work"
  cp ../../../README.md text
  tiny="--n_layer 1 --n_embd 8 --n_head 2 --batch_size 2 --max_iters 8 --eval_interval 4 --eval_iters 1
    --log_interval 2"
  # shellcheck disable=SC2086
  "$duet" train $tiny --block_size 8 --data text --out_dir run --alloc_trace alloc.trace >/dev/null
  # shellcheck disable=SC2086
  "$duet" train $tiny --task mqar --out_dir mqar >/dev/null
  printf 'seeds = [1, 2]\nmax_iters = 2\n[[arm]]\nname = "none"\ncoupling = "none"\n[[arm]]\nname = "euler"\n%s\n' \
    'coupling = "euler"' >lab.toml
)
seed() {  # TARGET FILE...
  [ -d "$seeds/$1" ] || return 0
  for file in "${@:2}"; do cp "$file" "$seeds/$1/$(basename "$(dirname "$file")")-$(basename "$file")"; done
}
work=$seeds/work
seed config "$work"/*/config.toml
seed lab "$work/lab.toml"
seed log "$work"/*/metrics.jsonl
seed manifest "$work"/*/checkpoints/step_*8/manifest.json
seed safetensors "$work"/run/checkpoints/step_*8/*.safetensors
seed state "$work"/*/checkpoints/step_*8/state.json
seed tokenizer "$work"/*/tokenizer.json
seed trace "$work/alloc.trace"

passed=0
failed=0
for target in "${targets[@]}"; do
  log=$fuzz/$target.log
  if "$fuzz/${target}_fuzz" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 \
    -print_final_stats=1 -artifact_prefix="$fuzz/found/$target-" "$fuzz/corpus/$target" "$seeds/$target" \
    >"$log" 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    grep -m 1 -E "ERROR|runtime error|SUMMARY" "$log" || tail -n 3 "$log"
  fi
  echo "fuzz: $target: $(awk '/stat::number_of_executed_units/ { print $2 }' "$log") runs in ${seconds} s"
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
