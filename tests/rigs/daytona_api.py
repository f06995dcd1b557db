"""The main API of the rig's Daytona: sandboxes, snapshots, volumes, previews, the key itself."""

from __future__ import annotations

import asyncio
import json
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.rigs.daytona_faults import refusal
from tests.rigs.daytona_sandbox import HONOURED, Sandbox

if TYPE_CHECKING:
    from tests.rigs.daytona_server import Daytona

_GPUS = ("H100", "H200", "B200", "B300", "RTX-PRO-6000", "RTX-4090", "RTX-5090", "MI355X")
_LISTED = ("labels", "cursor", "limit", "states")


class MainApi:
    """Each operation is ``op_`` and the generated client's name for it."""

    def __init__(self, service: Daytona) -> None:
        self._service = service
        self.tokens: dict[tuple[str, int], str] = {}

    def find(self, name: str) -> Sandbox:
        """The sandbox of that id or name."""
        for sandbox in self._service.sandboxes.values():
            if name in {sandbox.id, sandbox.name}:
                return sandbox
        raise web.HTTPNotFound(text=f"Sandbox with ID or name {name} not found")

    async def op_create_sandbox(self, _: web.Request, body: dict[str, Any]) -> object:
        service = self._service
        for name in body.keys() - HONOURED - {key for key, value in body.items() if value in (None, False, [], {})}:
            service.complain(f"create_sandbox: the rig does nothing with {name!r}")
        if any(kind not in _GPUS for kind in body.get("gpuType") or ()):
            return refusal(400, "gpuType must be one of the following values: " + ", ".join(_GPUS))
        if len(service.sandboxes) >= service.quota:
            return refusal(403, "Total CPU limit exceeded. Maximum allowed: 10.")  # assumed: [U] facts 3.2
        if any(body.get("name") in {each.id, each.name} for each in service.sandboxes.values()):
            return refusal(409, f"Sandbox with name {body['name']} already exists")
        base = None
        if snapshot := body.get("snapshot"):
            if snapshot not in service.snapshots:
                return refusal(404, f"Snapshot {snapshot} not found")
            base = service.snapshots[snapshot]
        for volume in body.get("volumes") or ():
            if volume["volumeId"] not in service.volumes:
                return refusal(400, f"Volume {volume['volumeId']} not found")
        sandbox = Sandbox(service, body, base)
        service.sandboxes[sandbox.id] = sandbox
        if build := body.get("buildInfo"):
            service.builds.append(build["dockerfileContent"])
        service.later(self._bring_up(sandbox))
        return sandbox.record()

    async def _bring_up(self, sandbox: Sandbox) -> None:
        await asyncio.sleep(self._service.create_s)  # assumed: 0.2 s of the 0.1 to 0.7 s that are told ([D] facts 3.3)
        if self._service.create_fails:
            sandbox.reason = self._service.create_fails
            await sandbox.become("error")
        elif sandbox.state == "creating":
            await sandbox.start()

    async def op_get_sandbox(self, _: web.Request, sandbox_id_or_name: str) -> object:
        evicted = self._service.gone.get(sandbox_id_or_name)
        return (evicted or self.find(sandbox_id_or_name)).record()

    async def op_list_sandboxes(self, request: web.Request) -> object:
        for name in request.query:
            if name not in _LISTED:
                self._service.complain(f"list_sandboxes: the rig does nothing with {name!r}")
        wanted: dict[str, str] = json.loads(request.query.get("labels", "{}"))
        found = [each for each in self._service.sandboxes.values() if wanted.items() <= each.labels.items()]
        if states := request.query.getall("states", []):
            found = [each for each in found if each.state in states]
        begin, most = int(request.query.get("cursor", 0)), int(request.query.get("limit", 100))
        rest = begin + most < len(found)
        return {
            "items": [each.record() for each in found[begin : begin + most]],
            "nextCursor": str(begin + most) if rest else None,
        }

    async def op_delete_sandbox(self, _: web.Request, sandbox_id_or_name: str) -> object:
        sandbox = self.find(sandbox_id_or_name)
        await sandbox.destroy()
        return sandbox.record()

    async def op_start_sandbox(self, _: web.Request, sandbox_id_or_name: str) -> object:
        sandbox = self.find(sandbox_id_or_name)
        if sandbox.state not in {"stopped", "archived"}:
            return refusal(400, "Sandbox is not in valid state")
        await sandbox.become("restoring" if sandbox.state == "archived" else "starting")
        self._service.later(sandbox.start())
        return sandbox.record()

    async def op_stop_sandbox(self, _: web.Request, sandbox_id_or_name: str) -> object:
        sandbox = self.find(sandbox_id_or_name)
        if sandbox.state != "started":
            return refusal(400, "Sandbox is not started")
        await sandbox.stop()
        return sandbox.record()

    async def op_archive_sandbox(self, _: web.Request, sandbox_id_or_name: str) -> object:
        sandbox = self.find(sandbox_id_or_name)
        if sandbox.state != "stopped":
            return refusal(400, "Sandbox is not stopped")
        await sandbox.archive()
        return sandbox.record()

    async def op_update_last_activity(self, _: web.Request, sandbox_id: str, body: dict[str, Any]) -> object:
        self.find(sandbox_id).seen()
        return None

    async def op_replace_labels(self, _: web.Request, sandbox_id_or_name: str, body: dict[str, Any]) -> object:
        sandbox = self.find(sandbox_id_or_name)
        sandbox.labels = dict(body["labels"])
        return {"labels": sandbox.labels}

    async def op_set_autostop_interval(self, _: web.Request, sandbox_id_or_name: str, interval: str) -> object:
        self.find(sandbox_id_or_name).auto_stop = int(interval)
        return self.find(sandbox_id_or_name).record()

    async def op_set_auto_archive_interval(self, _: web.Request, sandbox_id_or_name: str, interval: str) -> object:
        self.find(sandbox_id_or_name).auto_archive = int(interval)
        return self.find(sandbox_id_or_name).record()

    async def op_set_auto_delete_interval(self, _: web.Request, sandbox_id_or_name: str, interval: str) -> object:
        self.find(sandbox_id_or_name).auto_delete = int(interval)
        return self.find(sandbox_id_or_name).record()

    async def op_get_port_preview_url(self, _: web.Request, sandbox_id_or_name: str, port: str) -> object:
        sandbox = self.find(sandbox_id_or_name)
        token = self.tokens.setdefault((sandbox.id, int(port)), secrets.token_hex(8))
        url = f"{self._service.url}/preview/{sandbox.id}/{port}"
        return {"sandboxId": sandbox.id, "url": url, "token": token}

    async def op_create_sandbox_snapshot(self, _: web.Request, sandbox_id_or_name: str, body: dict[str, Any]) -> object:
        sandbox, name = self.find(sandbox_id_or_name), body["name"]
        if name in self._service.snapshots:
            return refusal(409, f"Snapshot with name {name} already exists")
        if sandbox.cell is None:
            return refusal(400, "Sandbox is not started")
        before = sandbox.state
        await sandbox.become("snapshotting")
        folder = self._service.folder / f"snapshot-{name}"
        await sandbox.cell.snapshot(folder)
        self._service.snapshots[name] = folder
        await sandbox.become(before)
        return sandbox.record()

    async def op_get_current_api_key(self, _: web.Request) -> object:
        return {
            "name": "the test's", "value": "dtn_*****", "createdAt": "2026-01-01T00:00:00Z", "permissions": [],
            "lastUsedAt": None, "expiresAt": self._service.key_ends, "userId": "user", "organizationId": "organization",
        }  # fmt: skip

    async def op_get_organization_usage_overview(self, _: web.Request, organization_id: str) -> object:
        used = len(self._service.sandboxes)
        region = {"regionId": "us", "currentCpuUsage": used, "totalCpuQuota": self._service.quota}
        return {"regionUsage": [region]} if organization_id == "organization" else refusal(404, "no such organization")

    async def op_get_volume_by_name(self, _: web.Request, name: str) -> object:
        if name not in self._service.volumes:
            return refusal(404, f"Volume with name {name} not found")
        return self._volume(name)

    async def op_create_volume(self, _: web.Request, body: dict[str, Any]) -> object:
        self._service.volumes.add(body["name"])
        self._service.volume_folder(body["name"]).mkdir(exist_ok=True)
        return self._volume(body["name"])

    def _volume(self, name: str) -> dict[str, Any]:
        now = datetime.now(UTC).isoformat()
        return {
            "id": name, "name": name, "organizationId": "organization", "state": "ready", "createdAt": now,
            "updatedAt": now, "errorReason": None,
        }  # fmt: skip
