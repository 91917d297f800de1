#!/usr/bin/env bash
# clang-tidy over the product's sources that a build compiles (not the tests), two at a time.
#   lint.sh BUILD_DIR [FOLDER]      FOLDER: only what lies there
set -euo pipefail
build=$(cd "${1:?usage: lint.sh BUILD_DIR [FOLDER]}" && pwd)
folder=${2:-}
cd "$(dirname "$0")/.."
command -v clang-tidy >/dev/null || { echo "lint skipped: there is no clang-tidy"; exit 77; }
git ls-files -- '*.cpp' | grep -v '^tests/' | grep "^$folder" |
  while read -r file; do
    ! grep -q "\"file\": \"$PWD/$file\"" "$build/compile_commands.json" || echo "$file"
  done |
  xargs -P "$(nproc)" -n 4 clang-tidy -p "$build" --quiet --warnings-as-errors='*'
