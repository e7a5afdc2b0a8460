#!/usr/bin/env bash
# clang++ with libFuzzer, from Debian: a build does without. What is there already costs nothing.
set -euo pipefail
wanted=(clang libclang-rt-14-dev)  # the second holds clang 14's libFuzzer and sanitizers

missing=()
for package in "${wanted[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $status == installed ]] || missing+=("$package")
done
((${#missing[@]})) || exit 0
sudo=()
((EUID == 0)) || sudo=(sudo)
"${sudo[@]}" apt-get -qq update
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install \
  "${missing[@]}" > /dev/null
