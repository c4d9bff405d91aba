# SPDX-License-Identifier: Apache-2.0
"""One turn of a conversation, from Python. Usage: agent.py IMAGE

The box of a user and a thread: at the next turn it is the same, with its files.
"""

import sys

import cubby

SCRIPT = """
echo "sum: $((19 + 23))"
echo "this goes to stderr" >&2
"""


def main(image: str) -> None:
    settings = {"image": image, "memory_mib": 256, "replicas": 4, "idle_timeout": 600}
    with cubby.Cubby() as home, home.provider(settings) as provider:
        turn = provider.acquire("alice", "thread-1")
        box = turn.box
        print(f"box {turn.id}: {turn.served}")

        box.write("/mnt/user-data/workspace/task.sh", SCRIPT)
        result = box.run("sh task.sh", workdir="/mnt/user-data/workspace", timeout=60)
        print(result.code, result.text, end="")

        box.write("/mnt/user-data/outputs/report.txt", result.stdout)
        for entry in box.list("/mnt/user-data", depth=2):
            print(entry.type, entry.path)
        matches, more = box.grep("/mnt/user-data", r"sum: (\d+)")
        print(matches[0].path, matches[0].line_number, matches[0].line)

        try:
            box.read("/nonexistent")
        except FileNotFoundError as problem:
            print(problem)

        provider.release(turn.id)  # the box waits, warm, for the next turn


if __name__ == "__main__":
    main(sys.argv[1])
