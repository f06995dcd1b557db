"""A hundred terminals at once: each works, none is shared, and nothing is left of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from hermes_exec import Lease, Orchestrator, Pool
from hermes_exec.testing.place import link
from tests.rigs.breadth import thorough

COUNT = 100


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.slow
@pytest.mark.timeout(600)
@thorough
def test_a_hundred_terminals_are_open_at_once_and_gone_at_the_end(
    bounded: Callable[..., None], soon: Callable[..., Awaitable[None]], record_property: Callable[[str, object], None]
) -> None:
    folders: list[Path] = []

    async def scenario() -> None:
        async with Orchestrator({"p": Pool("local", audit=False)}, limit=COUNT) as orchestrator:
            await (await orchestrator.lease("p")).release()  # what is loaded once is loaded now
            before = descriptors()
            leases: list[Lease] = await asyncio.gather(*(orchestrator.lease("p", key=str(n)) for n in range(COUNT)))
            words = ["sh", "-c", "echo $$"]  # live shells need an inotify instance each, of which a user has 128
            answers = await asyncio.gather(*(lease.terminal.run(words) for lease in leases))
            assert len({answer.stdout for answer in answers}) == COUNT
            folders.extend(Path(link(lease.terminal).guest["folder"]) for lease in leases)
            assert len(set(folders)) == COUNT
            grown = descriptors() - before
            record_property("descriptors for each terminal", grown / COUNT)
            assert grown <= 6 * COUNT
            for lease in leases:
                await lease.release()
        await soon(lambda: not [folder for folder in folders if folder.exists()])
        assert descriptors() <= before

    bounded(scenario(), 500)
