#!/usr/bin/env bash
# Runs every fuzz target of the module for a short while.
# Usage: hack/fuzz.sh [duration per target, such as 10s]
set -euo pipefail
cd "$(dirname "$0")/.."

duration=${1:-10s}
found=0
while IFS=: read -r file name; do
	found=1
	dir=./$(dirname "$file")
	echo "fuzz $dir $name for $duration"
	go test -run '^$' -fuzz "^$name\$" -fuzztime "$duration" -fuzzminimizetime 1s "$dir"
done < <(grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' api cmd controllers fsm phases resources test | sed 's/func //')
[ $found = 1 ] || { echo "fuzz: no fuzz target found" >&2; exit 1; }
