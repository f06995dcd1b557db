"""A guest that really runs, of this Python and of the oldest one, with a folder there and a folder here."""

from __future__ import annotations

import asyncio
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

from hermes_exec.files import Files
from hermes_exec.transport.call import GuestCall
from hermes_exec.transport.link import Link
from hermes_exec_backends.local import LocalBackend
from tests.rigs.bounded import PATIENCE_S
from tests.rigs.breadth import thorough
from tests.rigs.pythons import PYTHON_3_6

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator, Mapping, Sequence

    from hermes_exec.backend import BackendTraits, BulkTransfer, Channel, Receiver

R = TypeVar("R")


class Place(LocalBackend):
    """This machine, seen by the given interpreter; an old one cannot take our compiled code."""

    def __init__(self, python: str = "", *, near: bool = False, mover: BulkTransfer | None = None) -> None:
        self._python = python
        self._near = near
        self._mover = mover
        self._channels: list[Channel] = []

    @property
    def traits(self) -> BackendTraits:
        """Open files are handed over only ``near``; the tests of the link send the content over it."""
        traits = replace(super().traits, shares_host=self._near, needs_checksum=not self._near)
        return replace(traits, pythons=(self._python,), same_python=False) if self._python else traits

    @property
    def bulk_transfer(self) -> BulkTransfer | None:
        """What moves large files beside the channel."""
        return self._mover

    async def spawn(
        self, argv: Sequence[str | bytes], receiver: Receiver, *, env: Mapping[str, str] | None = None
    ) -> Channel:
        self._channels.append(await super().spawn(argv, receiver, env=env))
        return self._channels[-1]

    async def close(self, *, keep: bool = False) -> None:
        """Wait for the processes behind channels that were cut: they end with their guest."""
        for channel in self._channels:
            await asyncio.to_thread(vars(channel)["_process"].wait)


Seen = dict[str, tuple[str, int, int, bytes]]


def tree(root: Path) -> Seen:
    """Everything below a folder: kind, permissions, mtime (of all but links), content or target."""
    seen: Seen = {}
    top = os.fsencode(root)
    for folder, folders, names in os.walk(top):
        for name in folders + names:
            path = folder + b"/" + name
            info = os.lstat(path)
            key = os.fsdecode(path[len(top) + 1 :])
            if stat.S_ISLNK(info.st_mode):
                seen[key] = "link", 0, 0, os.readlink(path)
            elif stat.S_ISDIR(info.st_mode):
                seen[key] = "folder", info.st_mode & 0o7777, info.st_mtime_ns, b""
            else:
                content = Path(os.fsdecode(path)).read_bytes()
                seen[key] = "file", info.st_mode & 0o7777, info.st_mtime_ns, content
    return seen


class Told:
    """A progress callback that keeps what it was told."""

    def __init__(self) -> None:
        self.all: list[tuple[int, int, int, int]] = []

    def __call__(self, done: int, total: int, files: int, total_files: int) -> None:
        self.all.append((done, total, files, total_files))


@pytest.fixture
def told() -> Told:
    return Told()


class Rig:
    """A link to a new guest, the files over it, and two folders: ``there`` for the place, ``here`` for us."""

    def __init__(self, runner: asyncio.Runner, backend: Place, base: Path) -> None:
        self.there = base / "there"
        self.here = base / "here"
        self.base = base
        self.there.mkdir()
        self.here.mkdir()
        self._runner = runner
        self._backend = backend
        self.open()

    def open(self) -> None:
        """Start a guest."""
        self.link = self.run(self._link())
        self.files = Files(self.link)

    async def _link(self) -> Link:
        link = Link(self._backend, env={}, cwd=str(self.there))
        await link.open()
        return link

    def run(self, awaitable: Awaitable[R]) -> R:
        """Wait for something on the rig's event loop, half a minute at most."""

        async def whole() -> R:
            async with asyncio.timeout(PATIENCE_S):
                return await awaitable

        return self._runner.run(whole())

    def close(self) -> None:
        """End the guest; nothing unfinished is left anywhere."""
        self.run(self.link.close())
        self.run(self._backend.close())
        assert b"Traceback" not in vars(self.link)["_attempt"].stderr

    @staticmethod
    def tree(root: Path) -> Seen:
        """Everything below a folder, to be compared with another one."""
        return tree(root)

    @property
    def unfinished(self) -> list[Path]:
        """Files and folders under temporary names."""
        return list(self.base.rglob(".hx-*"))


def rig_of(backend: Place, base: Path) -> Generator[Rig]:
    """A rig of that place, which leaves nothing unfinished."""
    with asyncio.Runner() as runner:
        rig = Rig(runner, backend, base)
        yield rig
        rig.close()
        assert not rig.unfinished


@pytest.fixture
def rig(tmp_path: Path) -> Generator[Rig]:
    yield from rig_of(Place(), tmp_path)


@pytest.fixture
def near_rig(tmp_path: Path) -> Generator[Rig]:
    """One that lends open files."""
    yield from rig_of(Place(near=True), tmp_path)


PYTHONS = ("this python", pytest.param("python 3.6", marks=thorough))
"""What a place's interpreter is, for fixtures: ours, and the oldest one."""


def rig_by(python: str, base: Path, mover: BulkTransfer | None = None) -> Generator[Rig]:
    """A rig of a place with one of these interpreters."""
    if python == "this python":
        yield from rig_of(Place(mover=mover), base)
        return
    if not PYTHON_3_6:
        pytest.skip("no Python 3.6 on this machine. Try: HERMES_EXEC_PYTHON36=/path/to/python3.6")
    yield from rig_of(Place(PYTHON_3_6, mover=mover), base)


@pytest.fixture(params=PYTHONS)
def each_rig(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Rig]:
    """The same with the oldest interpreter too."""
    yield from rig_by(request.param, tmp_path)


def planted(path: Path, data: bytes) -> Path:
    """A file with that content, and with a mode and times of its own."""
    path.write_bytes(data)
    path.chmod(0o640)
    os.utime(path, ns=(1_000_000_007, 2_000_000_009))
    return path


@pytest.fixture
def carried(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the pieces that calls send and receive from here on."""
    sizes: list[int] = []
    feed, write = GuestCall.feed, GuestCall.write

    def fed(call: GuestCall, channel: int, data: bytes) -> None:
        sizes.append(len(data))
        feed(call, channel, data)

    async def written(call: GuestCall, data: bytes) -> None:
        sizes.append(len(data))
        await write(call, data)

    monkeypatch.setattr(GuestCall, "feed", fed)
    monkeypatch.setattr(GuestCall, "write", written)
    return sizes
