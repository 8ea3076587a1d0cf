#!/usr/bin/env bash
# Serves SmolLM2-135M with prony-sut, measures it with prony, and stops the server whatever happens.
# Called by `make demo` after the build. Arguments are passed on to `prony suite`.
set -euo pipefail
cd "$(dirname "$0")/.."

out="${PRONY_OUT:-results/demo-$(date +%Y%m%d-%H%M%S)}"
model=.models/SmolLM2-135M-Instruct
ready_s=60
log=$(mktemp)
server=""

stop_server() {
    [ -n "$server" ] || return 0
    kill -TERM "$server" 2>/dev/null || true
    for _ in $(seq 100); do
        kill -0 "$server" 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=""
}
trap 'stop_server; rm -f "$log"' EXIT
trap 'exit 130' INT TERM HUP

# Without the prefix cache: MLPerf allows no query to profit from an earlier one.
# A session of its own: Ctrl-C goes to prony, which reports what it has; the trap stops the server.
setsid target/release/prony-sut serve --model "$model" --port 0 --no-prefix-cache >"$log" 2>&1 &
server=$!
url=""
for _ in $(seq $((ready_s * 10))); do
    url=$(sed -n 's/^listening on \(http:[^ ]*\).*/\1/p' "$log")
    [ -z "$url" ] || break
    kill -0 "$server" 2>/dev/null || { cat "$log" >&2; echo "demo: the server ended before it was ready" >&2; exit 3; }
    sleep 0.1
done
[ -n "$url" ] || { cat "$log" >&2; echo "demo: the server was not ready within $ready_s s" >&2; exit 3; }
echo "demo: $model served at $url"

# In the background, and waited for: bash acts on a signal during a wait, but not while a command in
# the foreground runs. In a process group of its own (set -m), so that Ctrl-C comes once, from here;
# prony then reports what it has, and ends at once the second time.
client=""
ended_by=""
interrupt_client() {
    ended_by=$1
    [ -z "$client" ] || kill -INT "$client" 2>/dev/null || true
}
trap 'interrupt_client 130' INT
trap 'interrupt_client 143' TERM
trap 'interrupt_client 129' HUP
set -m
target/release/prony suite scenarios/suites/demo.toml --endpoint "$url" --out "$out" "$@" &
client=$!
set +m
[ -z "$ended_by" ] || interrupt_client "$ended_by"
code=0
wait "$client" || code=$?
while kill -0 "$client" 2>/dev/null; do wait "$client" || code=$?; done
exit "${ended_by:-$code}"
