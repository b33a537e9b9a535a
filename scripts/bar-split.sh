#!/usr/bin/env bash
# Two spawned stages decode at 90 % of the unsplit rate or better, on the 0.5B shape.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${DCHAIN:=./dchain}"
[ -x "$DCHAIN" ] || go build -o "$DCHAIN" .
go run ./scripts/splitbench -dchain "$DCHAIN" -stages 2 -pairs "${PAIRS:-5}" -min 0.9
