#!/usr/bin/env bash
# Builds the wheel, installs it with torch into a new virtual environment, and runs README's Python example there from
# outside of the tree.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/tests/install
python=$root/.venv/bin/python3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "-- building the wheel"
cd "$root"
"$python" -m pip --disable-pip-version-check wheel --quiet --no-build-isolation --no-deps -Cbuild-dir=build -w "$work" .
"$python" "$here/readme_block.py" python > "$work/example.py"

echo "-- new virtual environment with torch 2.13.0"
"$python" -m venv "$work/venv"
"$work/venv/bin/python" -m pip --disable-pip-version-check install --quiet torch==2.13.0 "$work"/firstfault-*.whl

cd "$work"
"$work/venv/bin/python" "$here/check_installed.py" "$root" "$work"/firstfault-*.whl
echo "-- README's example"
"$work/venv/bin/python" example.py | tee example.out
grep -qE 'NaN|Inf' example.out || { echo "wheel test: the example named no NaN or Inf" >&2; exit 1; }
"$work/venv/bin/firstfault" --version
echo "wheel test: the wheel works without the build tree"
