"""A signal in the very moment in which something was made: it is removed, though nobody had heard of it yet."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.guest.filewrite import Landing

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

STEPS: dict[str, tuple[str, Callable[[Landing], None]]] = {
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

    landing = Landing(os.open(tmp_path, os.O_RDONLY), keep_outside=False)
    with monkeypatch.context() as patched:
        patched.setattr(os, call, made_and_stopped)
        with pytest.raises(Stopped):
            work(landing)
    landing.close()
    assert list(tmp_path.iterdir()) == []
