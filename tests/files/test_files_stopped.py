"""Stopped in the very moment in which something was made: it is removed, though nobody had heard of it yet."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.guest.files.atomic_writer import AtomicWriter
from hermes_exec.guest.files.tree_writer import TreeWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from tests.files.conftest import Rig

STEPS: dict[str, tuple[str, Callable[[TreeWriter], None]]] = {
    "small file": ("open", lambda landing: landing.file(b"a", 0o644, 0, memoryview(b"x"))),
    "large file": ("open", lambda landing: landing.begin(b"a", 0o644, 0)),
    "link": ("symlink", lambda landing: landing.link(b"a", 0, b"b")),
    "folder": ("mkdir", lambda landing: landing.enter(b"a", 0o755, 0)),
}


class Stopped(BaseException):
    """As a worker's own."""


@pytest.fixture
def stops() -> Generator[None]:
    """A signal ends what goes on, as TERM does in a worker."""

    def stop(*_: object) -> None:
        raise Stopped

    before = signal.signal(signal.SIGUSR1, stop)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("stops")
@pytest.mark.parametrize("step", STEPS)
def test_what_was_made_when_a_signal_came_is_removed(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, work = STEPS[step]
    make: Any = getattr(os, call)

    def made_and_stopped(*args: Any, **kwargs: Any) -> Any:
        made = make(*args, **kwargs)
        if b".hx-" in os.fsencode(args[0]) or call == "symlink":
            signal.raise_signal(signal.SIGUSR1)
        return made

    landing = TreeWriter(os.open(tmp_path, os.O_RDONLY), keep_outside=False)
    with monkeypatch.context() as patched:
        patched.setattr(os, call, made_and_stopped)
        with pytest.raises(Stopped):
            work(landing)
    landing.close()
    assert list(tmp_path.iterdir()) == []


def test_a_download_that_is_cancelled_while_its_file_is_made_leaves_none(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    (rig.there / "a").write_bytes(b"content")
    create, is_made, may_go_on = AtomicWriter.create, threading.Event(), threading.Event()

    def created(self: AtomicWriter, mode: int) -> None:
        create(self, mode)
        is_made.set()
        may_go_on.wait(20)

    async def cancelled() -> None:
        transfer = asyncio.ensure_future(rig.files.download("a", rig.here / "a"))
        await asyncio.to_thread(is_made.wait, 20)
        transfer.cancel()
        asyncio.get_running_loop().call_later(0.05, may_go_on.set)
        with pytest.raises(asyncio.CancelledError):
            await transfer

    monkeypatch.setattr(AtomicWriter, "create", created)
    rig.run(cancelled())
    assert list(rig.here.iterdir()) == []
