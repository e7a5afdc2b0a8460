#!/usr/bin/env bash
# Runs scan_fuzz from fresh seeds; prints executions and coverage, or what was found.
# usage: tests/fuzz/run.sh BUILD_FOLDER SECONDS
set -euo pipefail
cd "$(dirname "$0")/../.."
program=$1/bin/scan_fuzz log=$1/fuzz.log seconds=$2

rm -rf "$1/seeds" "$1/corpus"
.venv/bin/python tests/fuzz/seeds.py "$1/seeds"
mkdir -p "$1/corpus"
export UBSAN_OPTIONS=print_stacktrace=1
status=0
"$program" -max_total_time="$seconds" -timeout=60 -max_len=1024 -print_final_stats=1 -artifact_prefix="$1/" \
  "$1/corpus" "$1/seeds" > "$log" 2>&1 || status=$?
if ((status)); then
  tail -n 60 "$log"
  echo "fuzzing failed; all of it is in $log, and $program INPUT runs one input again" >&2
  exit "$status"
fi
counters=$(sed -n 's/.*Loaded 1 PC tables (\([0-9]*\) PCs).*/\1/p' "$log")
grep -E '^(Done|stat::(number_of_executed_units|new_units_added|peak_rss_mb))' "$log"
echo "coverage: $(grep -oE 'cov: [0-9]+ ft: [0-9]+' "$log" | tail -n 1), of $counters counters"
