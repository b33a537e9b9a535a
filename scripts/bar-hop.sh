#!/usr/bin/env bash
# A hop between two processes costs at most 1.3 x a bare quic-go echo of the same size and pace (p50 at most 0.3 ms, p99 at most 1.5 ms
# where the bare echo of the same run keeps to that).
set -euo pipefail
cd "$(dirname "$0")/.."
go run ./scripts/hopbench
