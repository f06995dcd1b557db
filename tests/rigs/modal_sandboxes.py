"""The control plane's sandboxes, of both generations."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

from grpclib.const import Status
from grpclib.exceptions import GRPCError

from tests.rigs.modal_dispatch import serves
from tests.rigs.modal_state import Sandbox
from tests.rigs.modal_wheel import api, empty

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.rigs.modal_state import State
    from tests.rigs.modal_worker import Worker

_DEFINITION = """
definition.entrypoint_args definition.image_id definition.mount_ids definition.secret_ids definition.resources.*
definition.timeout_secs definition.idle_timeout_secs definition.workdir definition.cloud_provider_str
definition.scheduler_placement.* definition.open_ports.* definition.open_ports definition.network_access.*
definition.network_access definition.name definition.volume_mounts.* definition.pty_info.*
"""


class Sandboxes:
    """Create, look up, list, tag, wait for and end sandboxes; ``worker`` gives the one for a new sandbox."""

    def __init__(self, state: State, worker: Callable[[], Worker]) -> None:
        self._state = state
        self._worker = worker

    @serves("SandboxCreateV2", fields=f"app_id secret_sources.* tags.* {_DEFINITION}")
    async def create_v2(self, request: Any) -> Any:
        """assumed: a repeated idempotency key makes a second sandbox (source: none; it is the worse case)."""
        if request.definition.resources.gpu_config.gpu_type:
            raise GRPCError(Status.INVALID_ARGUMENT, "GPUs are not supported by V2 Sandboxes")
        env = self._state.secret_values(request.secret_sources, request.definition.secret_ids)
        made = await self._create(2, request, env)
        return api.SandboxCreateV2Response(
            sandbox_id=made.id,
            task_id=made.task_id,
            tunnels=_tunnels(made),
            metadata=api.SandboxHandleMetadata(app_id=made.app_id),
            command_router_access=api.CommandRouterAccess(**self._access(made)),
        )

    @serves("SandboxCreate", fields=f"app_id tags.* {_DEFINITION}")
    async def create_v1(self, request: Any) -> Any:
        env = self._state.secret_values((), request.definition.secret_ids)
        made = await self._create(1, request, env)
        return api.SandboxCreateResponse(sandbox_id=made.id, metadata=api.SandboxHandleMetadata(app_id=made.app_id))

    async def _create(self, generation: int, request: Any, env: dict[str, str]) -> Sandbox:
        definition = request.definition
        if definition.name and any(
            each.name == definition.name and each.alive and each.app_id == request.app_id
            for each in self._state.sandboxes.values()
        ):
            raise GRPCError(Status.ALREADY_EXISTS, f"Sandbox with name {definition.name!r} already exists")
        sandbox_id = self._state.new_id("sb") if generation == 1 else self._state.new_id("sb", 26)
        task_id = sandbox_id.replace("sb-", "ta-") + ("V" if generation == 2 else "")
        cell = self._state.cell(sandbox_id, definition, env)
        tags = {tag.tag_name: tag.tag_value for tag in request.tags}
        made = Sandbox(sandbox_id, task_id, generation, request.app_id, definition, tags, cell, self._worker())
        self._state.sandboxes[sandbox_id] = made
        try:
            await cell.start()
            for spec in definition.open_ports.ports:
                server = await asyncio.start_server(partial(_relay, made, spec.port), "127.0.0.1", 0)
                made.servers.append(server)
                made.tunnels[spec.port] = server.sockets[0].getsockname()[1]
            await self._begin(made)
        except BaseException:
            await made.finish("INIT_FAILURE")
            raise
        return made

    async def _begin(self, made: Sandbox) -> None:
        loop = asyncio.get_running_loop()
        argv = list(made.definition.entrypoint_args)
        if argv:
            process = await made.cell.exec(argv, cwd=made.definition.workdir or "/root")
            process.close()  # nobody reads the entrypoint's streams
            made.timers.append(loop.create_task(_until_exit(made, process)))
        made.timers.append(loop.call_later(made.definition.timeout_secs, lambda: _end(made, "TIMEOUT", 124)))
        if made.definition.idle_timeout_secs:
            made.timers.append(loop.create_task(_until_idle(made, made.definition.idle_timeout_secs)))

    def _access(self, sandbox: Sandbox) -> dict[str, str]:
        return {"url": sandbox.worker.url, "jwt": self._state.token(task=sandbox.task_id)}

    @serves("SandboxGetTaskId", "SandboxGetTaskIdV2", fields="sandbox_id timeout wait_until_ready")
    async def task_id(self, request: Any) -> Any:
        found = self._state.find(request.sandbox_id)
        if not found.alive:
            return api.SandboxGetTaskIdResponse(task_result=found.result)
        return api.SandboxGetTaskIdResponse(task_id=found.task_id)

    @serves("TaskGetCommandRouterAccess", fields="task_id")
    async def access_v1(self, request: Any) -> Any:
        return api.TaskGetCommandRouterAccessResponse(**self._access(self._state.by_task(request.task_id)))

    @serves("SandboxGetCommandRouterAccess", fields="sandbox_id task_id")
    async def access_v2(self, request: Any) -> Any:
        found = self._state.find(request.sandbox_id)
        if not found.alive:
            raise GRPCError(Status.FAILED_PRECONDITION, "Sandbox has already finished")
        return api.SandboxGetCommandRouterAccessResponse(**self._access(found))

    @serves("SandboxTerminate", "SandboxTerminateV2", fields="sandbox_id")
    async def terminate(self, request: Any) -> Any:
        found = self._state.find(request.sandbox_id)
        existing = found.result
        await found.finish("TERMINATED", 137)
        return api.SandboxTerminateResponse(existing_result=existing)

    @serves("SandboxWait", "SandboxWaitV2", fields="sandbox_id timeout")
    async def wait(self, request: Any) -> Any:
        found = self._state.find(request.sandbox_id)
        with contextlib.suppress(TimeoutError):
            if request.timeout:
                await asyncio.wait_for(found.ended.wait(), request.timeout)
        metadata = api.SandboxHandleMetadata(app_id=found.app_id)
        return api.SandboxWaitResponse(result=found.result, metadata=metadata)

    @serves("SandboxGetFromNameV2", fields="sandbox_name environment_name app_name include_terminated")
    async def from_name_v2(self, request: Any) -> Any:
        return self._from_name(request, 2)

    @serves("SandboxGetFromName", fields="sandbox_name environment_name app_name include_terminated")
    async def from_name_v1(self, request: Any) -> Any:
        return self._from_name(request, 1)

    def _from_name(self, request: Any, generation: int) -> Any:
        app_id = self._state.apps.get(f"{request.environment_name}/{request.app_name}")
        for each in self._state.sandboxes.values():
            if (each.name, each.app_id, each.generation, each.alive) == (
                request.sandbox_name,
                app_id,
                generation,
                True,
            ):
                metadata = api.SandboxHandleMetadata(app_id=each.app_id)
                return api.SandboxGetFromNameResponse(sandbox_id=each.id, metadata=metadata)
        raise GRPCError(Status.NOT_FOUND, f"Sandbox with name {request.sandbox_name!r} not found")

    @serves("SandboxList", "SandboxListV2", fields="app_id before_timestamp environment_name include_finished tags.*")
    async def list(self, request: Any) -> Any:
        """assumed: the newest come first, and the second generation's list has those of both (source: the SDK)."""
        wanted = {tag.tag_name: tag.tag_value for tag in request.tags}
        found = [
            api.SandboxInfo(
                id=each.id, created_at=each.created, app_id=each.app_id, tags=_tags(each), name=each.name,
                image_id=each.definition.image_id, timeout_secs=each.definition.timeout_secs,
            )
            for each in sorted(self._state.sandboxes.values(), key=lambda each: -each.created)
            if each.alive
            and request.app_id in {"", each.app_id}
            and wanted.items() <= each.tags.items()
            and (not request.before_timestamp or each.created < request.before_timestamp)
        ]  # fmt: skip
        return api.SandboxListResponse(sandboxes=found[:2])

    @serves("SandboxTagsGet", "SandboxTagsGetV2", fields="sandbox_id")
    async def tags_get(self, request: Any) -> Any:
        return api.SandboxTagsGetResponse(tags=_tags(self._state.find(request.sandbox_id)))

    @serves("SandboxTagsSet", "SandboxTagsSetV2", fields="sandbox_id environment_name tags.*")
    async def tags_set(self, request: Any) -> Any:
        tags = {tag.tag_name: tag.tag_value for tag in request.tags}
        self._state.find(request.sandbox_id).tags = tags
        return empty.Empty()

    @serves("SandboxGetTunnels", "SandboxGetTunnelsV2", fields="sandbox_id timeout")
    async def tunnels(self, request: Any) -> Any:
        return api.SandboxGetTunnelsResponse(tunnels=_tunnels(self._state.find(request.sandbox_id)))


def _tags(sandbox: Sandbox) -> list[Any]:
    return [api.SandboxTag(tag_name=name, tag_value=value) for name, value in sandbox.tags.items()]


def _tunnels(sandbox: Sandbox) -> list[Any]:
    """assumed: where TLS would be is none (source: a rig has no certificate that the world trusts)."""
    return [
        api.TunnelData(
            host="127.0.0.1", port=here, unencrypted_host="127.0.0.1", unencrypted_port=here, container_port=there
        )
        for there, here in sandbox.tunnels.items()
    ]


def _end(sandbox: Sandbox, status: str, code: int) -> None:
    sandbox.ending = asyncio.ensure_future(sandbox.finish(status, code))


async def _until_exit(sandbox: Sandbox, process: Any) -> None:
    code = await process.wait()
    sandbox.timers.remove(asyncio.current_task())
    await sandbox.finish("SUCCESS" if code == 0 else "FAILURE", code if code >= 0 else 128 - code)


async def _until_idle(sandbox: Sandbox, limit_s: float) -> None:
    """assumed: an exec that runs is activity (source: the vendor's documentation of the option)."""
    loop = asyncio.get_running_loop()
    while True:
        if any(each.process.code is None for each in sandbox.execs.values()):
            sandbox.active = loop.time()
        left = sandbox.active + limit_s - loop.time()
        if left <= 0:
            break
        await asyncio.sleep(min(left, 0.2))
    sandbox.timers.remove(asyncio.current_task())
    await sandbox.finish("IDLE_TIMEOUT")


async def _relay(sandbox: Sandbox, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        inside, out = await asyncio.open_connection(sock=await sandbox.cell.connect(port))
    except OSError:
        writer.close()
        return

    async def carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
            target.write_eof()

    await asyncio.gather(carry(reader, out), carry(inside, writer))
    for each in (writer, out):
        each.close()
