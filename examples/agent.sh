#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One turn of a conversation, from a shell. Usage: agent.sh IMAGE
set -eu

config=$(mktemp)
trap 'rm -f "$config"' EXIT
printf 'sandbox:\n  image: %s\n  memory_mib: 256\n' "$1" >"$config"

cubby acquire --config "$config" --user alice --thread thread-1
id=$(cubby id --user alice --thread thread-1)
box=cubby-$id

cubby fs write "$box" /mnt/user-data/workspace/task.sh <<'TASK'
echo "sum: $((19 + 23))"
echo "this goes to stderr" >&2
TASK
cubby exec -w /mnt/user-data/workspace "$box" sh task.sh 2>/dev/null |
        cubby fs write "$box" /mnt/user-data/outputs/report.txt
cubby fs ls "$box" /mnt/user-data/outputs
cubby fs cat "$box" /mnt/user-data/outputs/report.txt

cubby release --config "$config" "$id" # the box waits, warm, for the next turn
