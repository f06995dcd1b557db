"""A terminal on an event loop that is not its own is refused in one line: whoever waits there would wait for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import hermes_exec
from hermes_exec import Terminal, UsageError

Use = Callable[[Terminal], Awaitable[Any]]
ANOTHER = "belongs to the event loop that it was opened on"


async def _events(terminal: Terminal) -> None:
    async with terminal.stream("true") as events:
        async for _ in events:
            pass


USES: dict[str, Use] = {
    "text": lambda terminal: terminal.run("true"),
    "words": lambda terminal: terminal.run(["true"]),
    "stream": _events,
    "session": lambda terminal: terminal.session(),
    "file": lambda terminal: terminal.read("/etc/passwd"),
    "job": lambda terminal: terminal.jobs(),
    "pty": lambda terminal: terminal.pty(["true"]),
    "limits": lambda terminal: terminal.limits(),
}


async def _awaited(use: Use, terminal: Terminal) -> Any:
    async with asyncio.timeout(60):
        return await use(terminal)


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_it_is_refused_and_its_own_loop_goes_on(use: Use) -> None:
    async def own() -> None:
        async with hermes_exec.open("local", audit=False) as terminal:
            await terminal.run("x=3")
            with pytest.raises(UsageError, match=ANOTHER):
                await asyncio.to_thread(lambda: asyncio.run(_awaited(use, terminal)))
            assert (await terminal.run("echo $x")).stdout == b"3\n"

    asyncio.run(own())


def test_it_is_refused_after_its_own_loop_has_ended() -> None:
    terminal = asyncio.run(hermes_exec.open("local", audit=False, lease_s=1))
    with pytest.raises(UsageError, match=ANOTHER):
        asyncio.run(_awaited(USES["words"], terminal))


def test_a_place_without_a_guest_refuses_it_too() -> None:
    async def own() -> None:
        async with hermes_exec.open("local", carrier="plain", audit=False) as terminal:
            with pytest.raises(UsageError, match=ANOTHER):
                await asyncio.to_thread(lambda: asyncio.run(_awaited(USES["text"], terminal)))
            assert (await terminal.run("echo in")).stdout == b"in\n"

    asyncio.run(own())
