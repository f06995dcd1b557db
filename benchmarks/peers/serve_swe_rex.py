"""SWE-ReX's local session: runs a command for each line, prints the seconds it took."""

import asyncio
import sys
import time

from swerex.runtime.abstract import BashAction, CreateBashSessionRequest
from swerex.runtime.local import LocalRuntime


async def main() -> None:
    runtime = LocalRuntime()
    await runtime.create_session(CreateBashSessionRequest())
    for line in sys.stdin:
        begin = time.perf_counter()
        await runtime.run_in_session(BashAction(command=line.rstrip("\n")))
        print("took", time.perf_counter() - begin, flush=True)
    await runtime.close()


asyncio.run(main())
