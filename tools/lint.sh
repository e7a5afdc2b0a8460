#!/usr/bin/env bash
# Format, lint and layer checks; with --fix, formats instead.
set -euo pipefail
cd "$(dirname "$0")/.."
ruff=.venv/bin/ruff
mapfile -t sources < <(find firstfault cli python examples benchmarks tests -name '*.h' -o -name '*.cpp' -o -name '*.cc' | sort)
if [[ ${1:-} == --fix ]]; then
  clang-format -i "${sources[@]}"
  "$ruff" check --quiet --fix .
  "$ruff" format --quiet .
  exit
fi
clang-format --dry-run -Werror "${sources[@]}"
"$ruff" check --quiet .
"$ruff" format --quiet --check .
.venv/bin/python tools/check_layers.py
