#!/bin/sh
# The two-turn conversation that used to fail: a tool call in turn one, and a turn two that has to replay it.
# Usage: scripts/repro-multi-turn.sh [BASE_URL]      default http://localhost:7071; FUNCTION_KEY=... for a deployed app
set -eu
base=${1:-http://localhost:7071}
url="${base%/}/api/agents/BugRepro/run"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

turn() { # turn NAME URL MESSAGE: the answer goes to $work/NAME.body, the headers to $work/NAME.headers
  echo "> $3"
  status=$(curl -sS -o "$work/$1.body" -D "$work/$1.headers" -w '%{http_code}' -X POST "$2" \
    -H 'Content-Type: text/plain' -H "x-functions-key: ${FUNCTION_KEY:-}" --data "$3") || {
    echo "FAILED: $base does not answer; start the host, or give its URL: $0 http://localhost:7071" >&2
    exit 2
  }
  cat "$work/$1.body"
  echo
  if [ "$status" != 200 ]; then
    echo "FAILED: turn $1 was answered with status $status" >&2
    exit 1
  fi
}

turn one "$url" "Please echo 'hello world'"
thread=$(tr -d '\r' < "$work/one.headers" | sed -n 's/^[Xx]-[Mm][Ss]-[Tt]hread-[Ii][Dd]: //p')
if [ -z "$thread" ]; then
  echo "FAILED: the answer has no x-ms-thread-id header" >&2
  exit 1
fi
turn two "$url?thread_id=$thread" "Now echo 'goodbye'"
if ! grep -qi goodbye "$work/two.body"; then
  echo "FAILED: the second answer does not say goodbye" >&2
  exit 1
fi
echo "OK: two turns in thread $thread"
