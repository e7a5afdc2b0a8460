#!/usr/bin/env bash
# Puts what is built in a build folder into .venv: once by an editable install, from then on by copying the modules.
# usage: install_python.sh BUILD_FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
stamp=.venv/firstfault-installed
if [[ -f $stamp && ! pyproject.toml -nt $stamp && -d $site/firstfault ]]; then
  cmake --install "$build" --component python --prefix "$site" > /dev/null
else
  .venv/bin/python -m pip --disable-pip-version-check install --quiet --no-build-isolation --no-deps \
    -Cbuild-dir="$build" -e .
  touch "$stamp"
fi
