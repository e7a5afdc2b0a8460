#!/usr/bin/env bash
# Everything a build needs: Debian packages, .venv, torch 2.13.0, Python tools. What is there already costs nothing.
# usage: setup.sh [NUMBER_OF_STEPS], the total that the progress lines name.
set -euo pipefail
cd "$(dirname "$0")/.."
steps=${1:-4}
say() { printf '[%s/%s] %s\n' "$1" "$steps" "$2"; }

missing=()
while read -r package; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $status == installed ]] || missing+=("$package")
done < tools/debian-packages.txt
if ((${#missing[@]})); then
  say 1 "Debian packages: installing ${missing[*]}"
  sudo=()
  ((EUID == 0)) || sudo=(sudo)
  "${sudo[@]}" apt-get -qq update
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install "${missing[@]}" > /dev/null
else
  say 1 "Debian packages: all there"
fi

if [[ -x .venv/bin/python ]]; then
  say 2 "virtual environment .venv: there"
else
  say 2 "virtual environment .venv: creating it with $(python3 --version)"
  python3 -m venv .venv
fi

pip() { .venv/bin/python -m pip --disable-pip-version-check install --quiet "$@"; }
# Every pip run costs a second or more, so the stamp holds what was last installed.
wanted="torch==2.13.0
$(cat tools/requirements-dev.txt)"
if [[ -f .venv/firstfault-setup && $(< .venv/firstfault-setup) == "$wanted" ]]; then
  say 3 "torch 2.13.0: there"
  say 4 "Python tools: there"
else
  say 3 "torch 2.13.0: installing (a minute or two the first time)"
  pip torch==2.13.0
  say 4 "Python tools: installing"
  pip torch==2.13.0 -r tools/requirements-dev.txt
  printf '%s\n' "$wanted" > .venv/firstfault-setup
fi
