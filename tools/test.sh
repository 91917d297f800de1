#!/usr/bin/env bash
# Installs what is missing, builds everything, runs the tests (formatting and the house check among
# them) and prints the totals last. DUET_TEST_DATA names a folder with real text and weights; without
# it the tests take the project's own sources instead. The test that opens the profile's page is
# skipped without Chromium (hundreds of MB: not installed here).
#   tools/test.sh          the test set, in build/ as it is, or without CUDA (DUET_CUDA=ON: with)
#   tools/test.sh isa      ops, plans, golden values and learning again under every lower DUET_ISA, and
#                          with scratch as oneDNN's products want it on other processors
#   tools/test.sh lint     clang-tidy
#   tools/test.sh sim      every kernel for CUDA on a simulated GPU; needs NVIDIA's headers, and is
#                          skipped without them unless DUET_REQUIRE_SIM=1
#   tools/test.sh asan     the simulator and its planted bugs under AddressSanitizer and UBSan
#   tools/test.sh tsan     the same under clang's ThreadSanitizer
#   tools/test.sh readers  the tests of what reads files and checkpoints, without CUDA, under AddressSanitizer
#                          and UBSan
#   tools/test.sh nightly  all of sim under both, and what takes long: the plans of larger models, every
#                          kill, failing call and power cut of tiny runs, five minutes of each fuzz target
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/packages.sh
label=${1:-}
# shellcheck disable=SC2086
need_packages $BUILD_PACKAGES $TEST_PACKAGES
if [ "$label" = lint ] || [ "$label" = tsan ]; then
  # shellcheck disable=SC2086
  need_packages $LINT_PACKAGES
fi
if [ "$label" = nightly ]; then
  status=0
  for part in asan tsan large_plans; do
    DUET_SANITIZED=sim "$0" $part || status=1
  done
  tools/fuzz.sh || status=1
  exit $status
fi

build=${DUET_BUILD_DIR:-build}
cuda=${DUET_CUDA:-}
target=all
options=()
select=(-LE 'lint|sim|gpu|isa|nightly')
case "$label" in
  lint | isa) select=(-L "$label") ;;
  large_plans) select=(-L nightly) ;;
  readers)
    build=${DUET_READERS_BUILD_DIR:-build-readers}
    target=reader_tests
    select=(-L readers)
    options=(-DDUET_SANITIZE=address)
    ;;
  sim | asan | tsan)
    build=${DUET_SIM_BUILD_DIR:-build-$label}
    cuda=SIM
    target=sim
    select=(-L sim)
    export DUET_REQUIRE_CUDA=1  # the simulated GPU is always there: a test that finds none has failed
    if [ "$label" != sim ]; then
      target=${DUET_SANITIZED:-sim_cuda_tests}
      select=(-L sim -E 'cuda_build|gpu_check|lint')
      options=(-DDUET_SANITIZE=address)
    fi
    [ "$label" != tsan ] || options=(-DDUET_SANITIZE=thread -DCMAKE_CXX_COMPILER=clang++
                                     -DDUET_WERROR=OFF)
    include=${CUDA_INCLUDE:-/usr/local/cuda/include}
    if [ ! -f "$include/cuda_runtime.h" ] && [ ! -f /usr/include/cuda_runtime.h ]; then
      echo "sim: NVIDIA's headers (cuda_runtime.h, cublasLt.h) are not in $include; set CUDA_INCLUDE"
      if [ "${DUET_REQUIRE_SIM:-0}" = 1 ]; then
        echo "0 passed, 1 failed, 0 skipped"
        exit 1
      fi
      echo "0 passed, 0 failed, 1 skipped"
      exit 0
    fi
    ;;
esac
configure "$build" -DDUET_TESTS=ON ${cuda:+-DDUET_CUDA="$cuda"} "${options[@]}"
cmake --build "$build" -j "$(nproc)" --target "$target"
tools/run_ctest.py "$build" -j "$(nproc)" "${select[@]}"
