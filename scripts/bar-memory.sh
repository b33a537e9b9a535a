#!/usr/bin/env bash
# A stage's peak memory while loading is at most 1.15 x its quantised weights + 64 MiB.
# The stage holds all 24 layers of the 0.5B shape: 357,826,560 int8 weights and 4 bytes of scale for each output row.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${DCHAIN:=./dchain}"
[ -x "$DCHAIN" ] || go build -o "$DCHAIN" .
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
weights=$((24 * (2 * 896 * 896 + 2 * 128 * 896 + 3 * 896 * 4864) + 24 * 4 * (2 * 896 + 2 * 128 + 2 * 4864 + 896)))
ssh-keygen -q -t ed25519 -N '' -f "$dir/head"
"$DCHAIN" serve-stage --model synthetic:qwen2.5-0.5b --layers 0-23 --listen 127.0.0.1:0 --backend cpu \
  --identity "$dir/stage" --authorized-keys "$dir/head.pub" >"$dir/out" 2>"$dir/err" &
pid=$!
for _ in $(seq 600); do
  grep -q '^ready$' "$dir/out" && break
  kill -0 $pid 2>/dev/null || { cat "$dir/err" >&2; exit 1; }
  sleep 0.1
done
grep -q '^ready$' "$dir/out" || { echo "the stage was not ready within 60 s" >&2; kill $pid; exit 1; }
peak=$(($(awk '/VmHWM/ {print $2}' /proc/$pid/status) * 1024))
kill -INT $pid
wait $pid || true
limit=$((weights * 115 / 100 + (64 << 20)))
echo "{\"weight_bytes\": $weights, \"peak_bytes\": $peak, \"limit_bytes\": $limit}"
[ "$peak" -le "$limit" ]
