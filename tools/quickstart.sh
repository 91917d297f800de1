#!/usr/bin/env bash
# From a fresh Debian to a trained model, without any download but packages: installs what is
# missing, builds build/duet, trains a small language model on this project's own source text twice
# (coupled and standard attention, same seed and tokens) and lets it write.
#   tools/quickstart.sh                 trains on the CPU
#   DUET_CUDA=ON tools/quickstart.sh    trains on an NVIDIA GPU; needs NVIDIA's CUDA toolkit
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/packages.sh

echo "== 1/4 packages"
# shellcheck disable=SC2086
need_packages $BUILD_PACKAGES
[ ! -x /usr/local/cuda/bin/nvcc ] || PATH=$PATH:/usr/local/cuda/bin
if [ -z "${DUET_CUDA:-}" ] && { [ -e /dev/nvidiactl ] || command -v nvcc >/dev/null; }; then
  echo "There is an NVIDIA GPU or CUDA toolkit here, which this build leaves aside unless you run"
  echo "  DUET_CUDA=ON tools/quickstart.sh"
fi

echo "== 2/4 build (several minutes the first time, on two cores)"
tests=OFF
[ ! -f build/CMakeCache.txt ] || tests=""  # as it is
configure build ${tests:+-DDUET_TESTS=$tests} ${DUET_CUDA:+-DDUET_CUDA="$DUET_CUDA"}
cmake --build build --target duet

echo "== 3/4 train: the same model with coupled and with standard attention"
runs=runs/quickstart-$(date +%Y%m%d-%H%M%S)
mkdir -p "$runs"
# Without indentation: a third of the bytes, and a small model would write little else.
cat README.md ./*/*.h ./*/*.cpp ./*/*/*.h ./*/*/*.cpp ./*/*/*.cu | sed 's/^ *//' >"$runs/source.txt"
for coupling in euler none; do
  echo "-- coupling = $coupling"
  build/duet train --preset tiny --n_embd 96 --n_head 3 --n_layer 3 --block_size 128 --batch_size 16 \
    --coupling "$coupling" --data "$runs/source.txt" --out_dir "$runs/$coupling" --seed 1 \
    --max_iters 400 --warmup_iters 30 --learning_rate 3e-3 --eval_interval 200 --eval_iters 20
done

echo "== 4/4 the coupled model writes"
build/duet generate --checkpoint "$runs/euler" --prompt "// The " --max_new_tokens 120 \
  --temperature 0.7 --top_k 20 --seed 1
echo
for arm in euler none; do
  loss=$(grep -o '"val/loss":[0-9.]*' "$runs/$arm/metrics.jsonl" | tail -n 1 | cut -d: -f2)
  LC_ALL=C printf 'last validation loss, coupling = %s: %.4f nats/byte\n' "$arm" "$loss"
done
cat <<END
(A demonstration: a few hundred steps on source text do not tell the two apart.)

The runs lie in $runs/{euler,none}. What next:
  build/duet train --preset small --data book.txt --out_dir runs/book   # your own text
  build/duet train --help
  tools/test.sh
  DUET_CUDA=ON tools/quickstart.sh   # the same on an NVIDIA GPU, where its CUDA toolkit is installed
END
