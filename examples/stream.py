# SPDX-License-Identifier: Apache-2.0
"""Output while a command runs, in a thread and under asyncio. Usage: stream.py IMAGE"""

import asyncio
import sys

import cubby


def one_after_the_other(box: cubby.Box) -> None:
    with box.exec("for i in 1 2 3; do echo $i; sleep 0.1; done") as running:
        for event in running:
            if event.exit is not None:
                print("ended with", event.exit.code)
            else:
                print(event.kind, event.data)


async def side_by_side(box: cubby.Box) -> None:
    async def talk(word: str) -> str:
        async with await box.exec_async(["cat"], stdin=True) as running:
            await running.write_async(word.encode())
            running.close_stdin()
            return "".join([event.data.decode() async for event in running])

    print(await asyncio.gather(*[talk(word) for word in ("red", "green", "blue")]))

    result = await box.run_async(["sleep", "60"], timeout=0.5)
    print("timed out:", result.timed_out)

    text = await cubby.in_thread(box.read_text, "/etc/hostname")
    print("host name:", text.strip())


if __name__ == "__main__":
    with cubby.Cubby() as home, home.start(sys.argv[1], memory=256 << 20) as box:
        try:
            one_after_the_other(box)
            asyncio.run(side_by_side(box))
        finally:
            box.remove(force=True)
