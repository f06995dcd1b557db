"""What a Modal of the tests has: sandboxes that are cells, what was started in them, images, secrets and volumes."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpclib.const import Status
from grpclib.exceptions import GRPCError

from tests.rigs.cell import Cell
from tests.rigs.cell_process import read_some
from tests.rigs.modal_wheel import api, message_to_dict

if TYPE_CHECKING:
    from tests.rigs.cell_process import Process
    from tests.rigs.modal_worker import Worker

HOUR_S = 3600
_HELD = 4 << 20
_KEPT = 16 << 20
"""assumed: a worker holds a producer whose output nobody takes, and keeps some of what was taken for a reader that
comes again (source: the SDK's reader resumes at an offset after a break; the sizes are ours)."""
Results = api.GenericResult
_FS_TOOLS = Path(__file__).with_name("modal_fs_tools.py")


class Tape:
    """One output of an exec, by offsets, for a reader that may come again."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._data = bytearray()
        self._start = 0
        self._taken = 0
        self._ended = False
        self._changed = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self._fill())

    async def _fill(self) -> None:
        while part := await read_some(self._fd):
            self._data += part
            self._tell()
            while self._start + len(self._data) - self._taken > _HELD:
                await self._changed.wait()
        self._ended = True
        self._tell()

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def read(self, offset: int, most: int = 256 << 10) -> bytes:
        """What follows ``offset``, waiting for something; nothing at the end."""
        if offset < self._start:
            raise GRPCError(Status.OUT_OF_RANGE, "that output is kept no more")
        while self._start + len(self._data) <= offset and not self._ended:
            await self._changed.wait()
        at = offset - self._start
        part = bytes(self._data[at : at + most])
        self._taken = max(self._taken, offset + len(part))
        if self._taken - self._start > 2 * _KEPT:
            del self._data[: self._taken - self._start - _KEPT]
            self._start = self._taken - _KEPT
        self._tell()
        return part


@dataclass
class Exec:
    """A program that was started in a sandbox."""

    process: Process
    stdout: Tape
    stderr: Tape | None
    argv: list[str]
    written: int = 0
    closed: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    stopped: str = ""


@dataclass
class Sandbox:
    """One sandbox: its definition as it came, its cell, and how it ended."""

    id: str
    task_id: str
    generation: int
    app_id: str
    definition: Any
    tags: dict[str, str]
    cell: Cell
    worker: Worker
    created: float = field(default_factory=time.time)
    execs: dict[str, Exec] = field(default_factory=dict[str, Exec])
    starting: dict[str, asyncio.Lock] = field(default_factory=dict[str, asyncio.Lock])
    result: Any = None
    active: float = field(default_factory=time.monotonic)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    tunnels: dict[int, int] = field(default_factory=dict[int, int])
    servers: list[asyncio.Server] = field(default_factory=list[asyncio.Server])
    timers: list[Any] = field(default_factory=list[Any])
    ending: Any = None

    @property
    def name(self) -> str:
        """The name that it was given."""
        return str(self.definition.name)

    @property
    def alive(self) -> bool:
        """Whether it has no result yet."""
        return self.result is None

    async def finish(self, status: str, exitcode: int = 0, exception: str = "") -> None:
        """End it, with everything in it."""
        if self.result is not None:
            return
        value = Results.GenericStatus.Value(f"GENERIC_STATUS_{status}")
        self.result = Results(status=value, exitcode=exitcode, exception=exception)
        for timer in self.timers:
            timer.cancel()
        for server in self.servers:
            server.close()
        await self.cell.terminate()
        self.ended.set()

    def told(self) -> dict[str, Any]:
        """All that a test may look at, as plain values."""
        return {
            "id": self.id,
            "name": self.name,
            "generation": self.generation,
            "alive": self.alive,
            "tags": dict(self.tags),
            "status": "" if self.alive else Results.GenericStatus.Name(self.result.status)[15:],
            "definition": message_to_dict(self.definition, preserving_proto_field_name=True),
            "root": str(self.cell.root),
            "execs": len(self.execs),
            "running": [each.argv for each in self.execs.values() if each.process.code is None],
        }


class State:
    """Everything, by its ids."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.apps: dict[str, str] = {}
        self.sandboxes: dict[str, Sandbox] = {}
        self.secrets: dict[str, dict[str, str]] = {}
        self.secret_names: dict[str, str] = {}
        self.volumes: dict[str, Path] = {}
        self.images: dict[str, Any] = {}
        """By id: the definition of one that was built, or the folder of a snapshot."""
        self.tags: dict[str, str] = {}
        """Published names of images."""
        self.build_failure = ""
        self.seccomp = b""
        self.childless = False
        self.tokens_for_s = HOUR_S
        self._numbers = itertools.count(1)

    def new_id(self, prefix: str, length: int = 22) -> str:
        """assumed: a first-generation id is ``sb-`` and 22 letters and digits (source: the SDK decides by it)."""
        return f"{prefix}-{next(self._numbers):0{length}d}"

    def find(self, sandbox_id: str) -> Sandbox:
        """A sandbox by its id.

        Raises:
            GRPCError: NOT_FOUND.
        """
        found = self.sandboxes.get(sandbox_id)
        if found is None:
            raise GRPCError(Status.NOT_FOUND, f"Sandbox with ID {sandbox_id} not found")
        return found

    def by_task(self, task_id: str) -> Sandbox:
        """A living sandbox by its task's id.

        assumed: a worker answers NOT_FOUND for a task that has ended (source: reports of users, "Modal Sandbox with
        container ID ta-… not found", and a comment in the SDK).
        """
        for sandbox in self.sandboxes.values():
            if sandbox.task_id == task_id and sandbox.alive:
                return sandbox
        raise GRPCError(Status.NOT_FOUND, f"Modal Sandbox with container ID {task_id} not found")

    def secret_values(self, sources: Any, ids: Any = ()) -> dict[str, str]:
        """The variables of secrets, in their order."""
        values: dict[str, str] = {}
        for source in sources:
            if source.secret_id:
                values.update(self.secrets[source.secret_id])
            else:
                values.update(source.env.contents)
        for each in ids:
            values.update(self.secrets[each])
        return values

    def token(self, **claims: Any) -> str:
        """A JWT that can be decoded, and whose signature nobody checks."""
        body = {"exp": int(time.time()) + self.tokens_for_s, **claims}
        parts = [json.dumps(part).encode() for part in ({"alg": "none"}, body)]
        return ".".join([*(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts), "x"])

    def check_token(self, text: str) -> dict[str, Any]:
        """The claims of a token of ours.

        Raises:
            GRPCError: UNAUTHENTICATED: it is none, or has expired.
        """
        try:
            body = text.split(".")[1]
            claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        except (IndexError, ValueError):
            raise GRPCError(Status.UNAUTHENTICATED, "no valid token") from None
        if claims["exp"] < time.time():
            raise GRPCError(Status.UNAUTHENTICATED, "the token has expired")
        return claims

    def cell(self, sandbox_id: str, definition: Any, env: dict[str, str]) -> Cell:
        """The cell that a sandbox with this definition gets."""
        base = self.images.get(definition.image_id)
        if base is None:
            raise GRPCError(Status.NOT_FOUND, f"Image with ID {definition.image_id} not found")
        volumes = {mount.mount_path: self.volumes[mount.volume_id] for mount in definition.volume_mounts}
        access = definition.network_access.network_access_type
        return Cell(
            self.folder / sandbox_id,
            base=base if isinstance(base, Path) else None,
            # An allow-list is recorded and not enforced: no address outside can be reached from here anyhow.
            network=access != api.NetworkAccess.BLOCKED,
            volumes={**volumes, "/__modal/.bin": self._tools()},
            env={"MODAL_SANDBOX_ID": sandbox_id, **env},
            hostname="modal",
            seccomp=self.seccomp,
            childless=self.childless,
        )

    def _tools(self) -> Path:
        folder = self.folder / "tools"
        if not folder.exists():
            folder.mkdir()
            program = folder / "modal-sandbox-fs-tools"
            program.write_bytes(b"#!/usr/bin/python3 -IS\n" + _FS_TOOLS.read_bytes())
            program.chmod(0o755)
        return folder
