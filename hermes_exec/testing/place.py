"""The target under test: its event loop, the terminal that tests share, and checks of its real state."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest

import hermes_exec
from hermes_exec.errors import HermesError, Unsupported
from hermes_exec.terminal.limits import Limits

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from hermes_exec.backend import Backend
    from hermes_exec.result import Result
    from hermes_exec.terminal.session import Session
    from hermes_exec.terminal.terminal import Terminal
    from hermes_exec.transport.link import Link

T = TypeVar("T")
_LIMIT_S = 60.0


class SuiteTarget:
    """A backend and the terminals open on it."""

    def __init__(self, backend: Backend, carrier: str | None = None, shell: str | None = None) -> None:
        self.backend = backend
        self._options: dict[str, Any] = {"audit": False, "lease_s": 60.0}
        if carrier is not None:
            self._options["carrier"] = carrier
        self._shell = shell
        self._runner = asyncio.Runner()
        self._runner.get_loop().set_exception_handler(self._keep_complaint)
        self._complaints: list[str] = []
        self._shared: Terminal | None = None
        self._spoiled = False

    def run(self, work: Awaitable[T], limit_s: float = _LIMIT_S) -> T:
        """Run ``work`` on the target's loop. After a failure the next test gets a new terminal."""

        async def wait_limited() -> T:
            async with asyncio.timeout(limit_s):
                return await work

        try:
            given = self._runner.run(wait_limited())
        except pytest.skip.Exception:
            raise
        except BaseException:
            self._spoiled = True
            raise
        complaints, self._complaints = self._complaints, []
        assert not complaints, "the event loop would have written: " + "; ".join(complaints)
        return given

    def _keep_complaint(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Record an error that asyncio would write to standard error, such as an exception in a callback."""
        self._complaints.append(f"{context.get('message')}: {context.get('exception')!r}")

    async def get_shared_terminal(self) -> Terminal:
        """Return the terminal that tests share, opened again if the last one is unusable."""
        if self._spoiled:
            await self.release()
        if self._shared is None:
            self._shared = await hermes_exec.open(self.backend, **self._options)
        return self._shared

    @contextlib.asynccontextmanager
    async def fresh(self, **options: Any) -> AsyncGenerator[Terminal]:
        """Open a terminal for one test alone with ``options``, which the test may close, cut or break."""
        await self.release()
        async with hermes_exec.open(self.backend, **{**self._options, **options}) as terminal:
            yield terminal

    async def session(self, **options: Any) -> Session:
        """Open a session with the shell under test."""
        return await (await self.get_shared_terminal()).session(
            **cast("dict[str, Any]", {"shell": self._shell, **options})
        )

    async def require(self, name: str) -> None:
        """Continue if the target promises ``name``; else check that it reports so, and skip the test.

        ``guest`` stands for behaviours of a guest that have no name of their own (docs/promises.md).
        """
        terminal = await self.get_shared_terminal()
        capabilities = terminal.capabilities
        if capabilities.carrier == "guest" if name == "guest" else getattr(capabilities, name):
            return
        ask = _REFUSED.get(name)
        if ask is not None:
            with pytest.raises(Unsupported):
                await ask(terminal)
        pytest.skip(f"{terminal.target} says that it has no {name}")

    async def release(self) -> None:
        """Close the terminal that tests share, so that the target can be opened separately."""
        terminal, self._shared, self._spoiled = self._shared, None, False
        if terminal is not None:
            with contextlib.suppress(HermesError):
                await terminal.close()

    async def remove(self, path: str) -> None:
        """Remove a folder on the target."""
        await (await self.get_shared_terminal()).run(["rm", "-rf", path])

    def close(self) -> None:
        """Close the terminals and the loop."""
        try:
            self.run(self.release())
        finally:
            self._runner.close()


async def _ask_for_a_list(terminal: Terminal) -> object:
    return await terminal.files.list("/")


_REFUSED: dict[str, Callable[[Terminal], Awaitable[object]]] = {
    "sessions": lambda terminal: terminal.session("by name"),
    "jobs": lambda terminal: terminal.start(["true"]),
    "pty": lambda terminal: terminal.pty(["true"]),
    "file_transfer": _ask_for_a_list,
    "forward": lambda terminal: terminal.forward(0, 1),
    "limits": lambda terminal: terminal.run(["true"], limits=Limits(open_files=9)),
}
"""The requests that a target without a capability has to refuse; other capabilities have no request."""


def link(terminal: Terminal) -> Link:
    """Return the guest's link of a terminal, to be cut."""
    return terminal._context.require_guest("be cut")  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  the suite may


def marker() -> str:
    """Return a number that no other process has in its arguments; ``sleep`` accepts it."""
    return str(random.randrange(10**8, 10**9))  # noqa: S311  not a secret


def ending_signal(result: Result) -> int | None:
    """Return the signal that ended a program; a shell transport may report it as 128 and more."""
    return result.signal or (result.exit_code - 128 if result.exit_code else None)


async def count_living(terminal: Terminal, mark: str) -> int:
    """Return the number of processes on the target that have ``mark`` in their arguments."""
    pattern = f"[{mark[0]}]{mark[1:]}"  # does not match the searching process itself
    look = f"grep -l '{pattern}' /proc/[0-9]*/cmdline 2>/dev/null | wc -l"
    return int((await terminal.run(["sh", "-c", look], check=True)).stdout)


async def wait_until(condition: Callable[[], Awaitable[bool]], within_s: float = 45.0) -> None:
    """Wait until ``condition`` holds; fail after ``within_s`` seconds."""
    clock = asyncio.get_running_loop().time
    give_up = clock() + within_s
    while not await condition():
        assert clock() < give_up, f"it did not come to hold within {within_s:g} s"
        await asyncio.sleep(0.01)
