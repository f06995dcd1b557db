"""One sandbox of the rig's Daytona: its record, the states it goes through, and the cell in which its commands run."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tests.rigs.cell import Cell

if TYPE_CHECKING:
    from pathlib import Path

    from aiohttp import web

    from tests.rigs.daytona_pty import Pty
    from tests.rigs.daytona_server import Daytona

HONOURED = frozenset(
    [
        "name",
        "snapshot",
        "user",
        "env",
        "labels",
        "public",
        "networkBlockAll",
        "networkAllowList",
        "target",
        "cpu",
        "gpu",
        "gpuType",
        "memory",
        "disk",
        "autoStopInterval",
        "autoArchiveInterval",
        "autoDeleteInterval",
        "ttlMinutes",
        "volumes",
        "buildInfo",
        "spot",
    ]
)
"""Fields of a request to create that are acted on or kept; any other that is set is an error of the rig."""


class Sandbox:
    """Made by ``POST /sandbox``."""

    def __init__(self, service: Daytona, wanted: dict[str, Any], base: Path | None) -> None:
        self.id = f"{secrets.token_hex(4)}-{secrets.token_hex(6)}"
        self.wanted = wanted
        self.name = str(wanted.get("name") or self.id)
        self.labels: dict[str, str] = dict(wanted.get("labels") or {})
        self.state = "creating"
        self.reason = ""
        self.evicted_at: str | None = None
        self.auto_stop = wanted.get("autoStopInterval", 15)  # assumed: [D] facts 3.3
        self.auto_archive = wanted.get("autoArchiveInterval", 7 * 24 * 60)  # assumed: [D] facts 3.3
        self.auto_delete = wanted.get("autoDeleteInterval", -1)
        self.ttl = wanted.get("ttlMinutes") or 0
        self.created = self.active = self.since = time.monotonic()
        self.created_at = self.seen_at = datetime.now(UTC).isoformat()
        self.ptys: dict[str, Pty] = {}
        self.live: list[web.Request] = []
        """The requests that it is working on, and its WebSockets."""
        self.cell: Cell | None = None
        self._service = service
        self._base = base
        self._folder = service.folder / self.id

    def record(self) -> dict[str, Any]:
        """Its record as the main API tells it."""
        wanted = self.wanted
        kinds: list[str] = wanted.get("gpuType") or []
        return {
            "id": self.id, "organizationId": "organization", "name": self.name, "snapshot": wanted.get("snapshot"),
            "user": wanted.get("user") or "root", "env": wanted.get("env") or {}, "labels": self.labels,
            "public": bool(wanted.get("public")), "networkBlockAll": bool(wanted.get("networkBlockAll")),
            "networkAllowList": wanted.get("networkAllowList"), "kvm": False,
            "target": wanted.get("target") or "us", "cpu": wanted.get("cpu") or 1, "gpu": wanted.get("gpu") or 0,
            "gpuType": kinds[0] if kinds else None, "memory": wanted.get("memory") or 1,
            "disk": wanted.get("disk") or 3, "state": self.state, "desiredState": "started",
            "errorReason": self.reason or None, "spotEvictedAt": self.evicted_at, "recoverable": False,
            "autoStopInterval": self.auto_stop, "autoArchiveInterval": self.auto_archive,
            "autoDeleteInterval": self.auto_delete, "volumes": wanted.get("volumes") or [],
            "createdAt": self.created_at, "updatedAt": self.created_at, "lastActivityAt": self.seen_at,
            "toolboxProxyUrl": self._service.toolbox_url,
        }  # fmt: skip

    def seen(self) -> None:
        """Somebody uses it."""
        self.active = time.monotonic()
        self.seen_at = datetime.now(UTC).isoformat()

    async def become(self, state: str) -> None:
        """Take a state, and tell everybody."""
        self.state = state
        self.since = time.monotonic()
        await self._service.tell(self)

    async def start(self) -> None:
        """Start it with what is on its disk; assumed: whatever ran before is gone ([D] only the disk is kept)."""
        wanted = self.wanted
        volumes = {
            each["mountPath"]: self._service.volume_folder(each["volumeId"]) for each in wanted.get("volumes", ())
        }
        self.cell = Cell(
            self._folder,
            base=self._base,
            network=not wanted.get("networkBlockAll"),
            volumes=volumes,
            env=wanted.get("env") or {},
            hostname=self.id,
        )
        await self.cell.start()
        self.active = time.monotonic()
        await self.become("started")

    async def halt(self) -> None:
        """Kill all that runs in it, and break off every request that it was working on."""
        cell, self.cell = self.cell, None
        if cell is not None:
            await cell.terminate()
        for pty in list(self.ptys.values()):
            await pty.lost()
        self.ptys.clear()
        for request in list(self.live):
            if request.transport is not None:
                request.transport.abort()

    async def stop(self) -> None:
        """Stop it; assumed: one with an auto-delete interval of 0 is deleted by that ([S] create's own words)."""
        await self.become("stopping")
        await self.halt()
        await self.become("stopped")
        if self.auto_delete == 0 or self.wanted.get("gpu"):  # assumed: one with a GPU is ephemeral ([D] facts 3.3)
            await self.destroy()

    async def archive(self) -> None:
        """Archive it; it is stopped."""
        await self.become("archiving")
        await self.become("archived")

    async def put_away(self) -> None:
        """Stop and archive it, as its owner or an interval would."""
        self.auto_delete = -1
        await self.stop()
        await self.archive()

    async def destroy(self) -> None:
        """Delete it, with its disk."""
        await self.become("destroying")
        await self.halt()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
        self._service.forget(self)
        await self.become("destroyed")

    async def die(self, state: str = "error", reason: str = "the runner was lost") -> None:
        """End as nobody wanted it to; as ``destroyed`` it was evicted, and can still be seen ([S] spotEvictedAt)."""
        await self.halt()
        self.reason = reason
        if state == "destroyed":
            self.evicted_at = datetime.now(UTC).isoformat()
        await self.become(state)

    async def tick(self, minute_s: float) -> None:
        """Let the intervals do their work."""
        now = time.monotonic()
        idle, still = (now - self.active) / minute_s, (now - self.since) / minute_s
        if self.ttl and (now - self.created) / minute_s >= self.ttl:
            await self.destroy()
        elif self.state == "started" and self.auto_stop and idle >= self.auto_stop:
            await self.stop()
        elif self.state in {"stopped", "archived"} and self.auto_delete >= 0 and still >= self.auto_delete:
            await self.destroy()
        elif self.state == "stopped" and self.auto_archive and still >= self.auto_archive:
            await self.archive()
