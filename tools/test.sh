#!/usr/bin/env bash
# Installs what is missing, builds everything, runs the tests (formatting and the house check among
# them) and prints the totals last. DUET_TEST_DATA names a folder with real text and weights; the
# tests that need it are skipped, and counted, without it. So is the one that opens the profile's
# page, without Chromium (hundreds of MB: not installed here).
#   tools/test.sh          the test set
#   tools/test.sh lint     clang-tidy
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/packages.sh
label=${1:-}
# shellcheck disable=SC2086
need_packages $BUILD_PACKAGES $TEST_PACKAGES
if [ "$label" = lint ]; then
  # shellcheck disable=SC2086
  need_packages $LINT_PACKAGES
fi

build=${DUET_BUILD_DIR:-build}
cmake -S . -B "$build" -G Ninja -DDUET_TESTS=ON >/dev/null
cmake --build "$build" -j "$(nproc)"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
select=(-LE lint -j "$(nproc)")
[ "$label" = lint ] && select=(-L lint)
status=0
ctest --test-dir "$build" --output-on-failure --no-tests=error "${select[@]}" 2>&1 |
  grep --line-buffered -vE '^ *(Start +[0-9]+:|[0-9]+/[0-9]+ Test .* Passed )' | tee "$log" || status=$?

# ctest's closing lines, in one line: "N passed, N failed, N skipped".
failed=$(sed -nE 's/.* ([0-9]+) tests? failed out of [0-9]+.*/\1/p' "$log")
total=$(sed -nE 's/.* failed out of ([0-9]+).*/\1/p' "$log")
skipped=$(grep -cE '\(Skipped\)$' "$log" || true)
[ -n "$total" ] || { echo "error: ctest did not finish" >&2; exit 1; }
[ "$skipped" -eq 0 ] || echo "Skipped tests need DUET_TEST_DATA (real text and weights) or Chromium (profile_page)."
echo "$((total - failed - skipped)) passed, $failed failed, $skipped skipped"
exit "$status"
