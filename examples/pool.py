"""Keep terminals ready and share them between tasks.

python examples/pool.py [TARGET]
"""

from __future__ import annotations

import asyncio
import sys

from hermes_exec import Orchestrator, Pool


async def work(orchestrator: Orchestrator, number: int) -> str:
    """Do one task in a terminal that nobody else has at the same time."""
    async with orchestrator.terminal("work", key=f"user-{number % 2}") as terminal:
        result = await terminal.run(f'echo task {number}; test -z "$mark"; mark=used')
        return f"{result.stdout_text.strip()}: {'clean' if result.ok else 'used before'}"


async def run(target: str) -> None:
    """Run six tasks on at most three terminals, two of which are kept ready."""
    async with Orchestrator({"work": Pool(target, warm=2)}, limits={target: 3}) as orchestrator:
        for line in await asyncio.gather(*(work(orchestrator, number) for number in range(6))):
            print(line)
        await orchestrator.drain(30)


def main(target: str = "local") -> None:
    """Run the example on ``target``."""
    asyncio.run(run(target))


if __name__ == "__main__":
    main(*sys.argv[1:])
