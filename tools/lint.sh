#!/usr/bin/env bash
# clang-tidy over the product's sources (not the tests), two at a time.  usage: lint.sh BUILD_DIR
set -euo pipefail
build=$(cd "${1:?usage: lint.sh BUILD_DIR}" && pwd)
cd "$(dirname "$0")/.."
git ls-files -- '*.cpp' | grep -v '^tests/' |
  xargs -P "$(nproc)" -n 4 clang-tidy -p "$build" --quiet --warnings-as-errors='*'
