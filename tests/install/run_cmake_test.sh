#!/usr/bin/env bash
# Installs what build/ holds into a temporary prefix, and builds and runs two programs against it from outside of the
# tree: README's C++ example with the component live, and one with the component core, which must not meet LibTorch.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/tests/install
python=$root/.venv/bin/python3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "install test: $*" >&2; exit 1; }

cmake --install "$root/build" --prefix "$work/first" > "$work/install.log"
mv "$work/first" "$work/prefix"  # nothing may depend on where it was installed first
[[ ! -e $work/prefix/firstfault ]] || fail "the C++ installation holds the Python package"
[[ -z $(find "$work/prefix/include" -name '*_test*') ]] || fail "test files are installed"

cp -r "$here/core_consumer" "$here/live_consumer" "$work"
"$python" "$here/readme_block.py" cpp > "$work/live_consumer/main.cpp"
for component in core live; do
  echo "-- component $component"
  folder=$work/${component}_consumer
  cmake -S "$folder" -B "$folder/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$work/prefix" \
    -DPython_EXECUTABLE="$python" > "$folder.log" 2>&1 || { cat "$folder.log"; fail "configuring failed"; }
  cmake --build "$folder/build"
  (cd "$work" && "$folder/build/consumer") | tee "$folder.out"
  grep -qE 'NaN|Inf' "$folder.out" || fail "the program named no NaN or Inf"
  ! grep -q "no line" "$folder.out" || fail "a call of the program has no line"
  ldd "$folder/build/consumer" > "$folder.libraries"
  ! grep -q "not found\|$root/build" "$folder.libraries" || { cat "$folder.libraries"; fail "wrong libraries"; }
done
! grep -qE "lib(torch|c10)" "$work/core_consumer.libraries" || fail "component core is linked to LibTorch"  # names only: addresses may hold c10
echo "install test: 2 programs built and run against the CMake package"
