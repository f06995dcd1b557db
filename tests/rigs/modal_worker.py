"""A worker of the Modal of the tests: the task command router, which starts programs in sandboxes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from grpclib.const import Status
from grpclib.exceptions import GRPCError

from tests.rigs.cell import CellError
from tests.rigs.cell_process import write_all
from tests.rigs.modal_dispatch import serves, to_its_end
from tests.rigs.modal_state import Exec, Sandbox, Tape
from tests.rigs.modal_wheel import router

if TYPE_CHECKING:
    from tests.rigs.modal_state import State

_STDERR = router.TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDERR


class Worker:
    """Serves the execs of the sandboxes that it holds."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.url = ""
        self.snapshots: dict[str, str] = {}

    def admit(self, name: str, request: Any, metadata: Any) -> None:
        """A token for that very task is wanted."""
        kind, _, token = str(metadata.get("authorization", "")).partition(" ")
        claims = self._state.check_token(token)
        task_id = getattr(request, "task_id", "") or getattr(getattr(request, "start", None), "task_id", "")
        if kind != "Bearer" or (task_id and claims.get("task") != task_id):
            raise GRPCError(Status.UNAUTHENTICATED, f"{name}: not for this token")

    def _exec(self, request: Any) -> tuple[Sandbox, Exec]:
        sandbox = self._state.by_task(request.task_id)
        found = sandbox.execs.get(request.exec_id)
        if found is None:
            raise GRPCError(Status.NOT_FOUND, f"exec {request.exec_id} not found")
        return sandbox, found

    @serves(
        "TaskExecStart",
        fields="task_id exec_id command_args stdout_config stderr_config timeout_secs workdir secret_sources.* "
        "pty_info.*",
    )
    async def exec_start(self, request: Any) -> Any:
        """assumed: the exec's id makes a repeated start the same one (source: the SDK's comment on it)."""
        sandbox = self._state.by_task(request.task_id)
        async with sandbox.starting.setdefault(request.exec_id, asyncio.Lock()):
            if request.exec_id not in sandbox.execs:
                await self._start(sandbox, request)
        return router.TaskExecStartResponse()

    async def _start(self, sandbox: Sandbox, request: Any) -> None:
        env = self._state.secret_values(request.secret_sources)
        pty = (24, 80) if request.HasField("pty_info") and request.pty_info.enabled else None
        cwd = request.workdir or sandbox.definition.workdir or "/root"
        argv = list(request.command_args)
        try:
            process = await sandbox.cell.exec(argv, env=env, cwd=cwd, pty=pty)
        except OSError as error:
            # assumed: what cannot be started is FAILED_PRECONDITION or so, and nothing ran (source: none)
            raise GRPCError(Status.INVALID_ARGUMENT, f"failed to start {argv[0]!r}: {error.strerror}") from error
        except CellError:
            raise GRPCError(Status.NOT_FOUND, f"container {request.task_id} not found") from None
        without = pty is not None
        made = Exec(process, Tape(process.pty if without else process.stdout), None, argv)
        if not without:
            made.stderr = Tape(process.stderr)
        sandbox.execs[request.exec_id] = made
        sandbox.active = asyncio.get_running_loop().time()
        if request.timeout_secs:
            asyncio.get_running_loop().call_later(request.timeout_secs, lambda: asyncio.ensure_future(process.kill()))

    @serves("TaskExecStdioRead", fields="task_id exec_id offset file_descriptor")
    async def stdio_read(self, request: Any) -> AsyncIterator[Any]:
        """assumed: the stream ends with the output's end of file, also when the sandbox dies (source: none)."""
        _, found = self._exec(request)
        tape = found.stderr if request.file_descriptor == _STDERR else found.stdout
        offset = request.offset
        while tape is not None and (part := await tape.read(offset)):
            offset += len(part)
            yield router.TaskExecStdioReadResponse(data=part)

    @serves("TaskExecStdinWrite", fields="task_id exec_id offset data eof")
    async def stdin_write(self, request: Any) -> Any:
        """assumed: bytes before the offset reached are dropped, a gap is refused (source: the SDK sends them again)."""
        sandbox, found = self._exec(request)
        async with found.lock:
            await self._write(found, request.offset, request.data)
            if request.eof and not found.closed:
                found.closed = True
                if found.process.pty < 0:
                    found.process.close_one("stdin")
        sandbox.active = asyncio.get_running_loop().time()
        return router.TaskExecStdinWriteResponse()

    async def _write(self, found: Exec, offset: int, data: bytes) -> None:
        if offset > found.written:
            raise GRPCError(Status.INVALID_ARGUMENT, f"a gap: {offset} after {found.written}")
        data = data[found.written - offset :]
        if found.closed and data:
            raise GRPCError(Status.FAILED_PRECONDITION, "stdin is closed")
        target = found.process.pty if found.process.pty >= 0 else found.process.stdin
        with contextlib.suppress(OSError):  # assumed: what nobody reads any more is dropped silently (source: none)
            await write_all(target, data)
        found.written += len(data)

    @serves("TaskExecStdinWriteStream", fields="start.* data end")
    async def stdin_write_stream(self, requests: AsyncIterator[Any], metadata: Any) -> Any:
        found: Exec | None = None
        at = 0
        async for request in requests:
            if request.HasField("start"):
                _, found = self._exec(request.start)
                at = request.start.offset
                continue
            assert found is not None
            await to_its_end(self._take(found, at, request))
            at += len(request.data)
        return router.TaskExecStdinWriteStreamResponse()

    async def _take(self, found: Exec, at: int, request: Any) -> None:
        async with found.lock:
            if request.HasField("end"):
                found.closed = True
                found.process.close_one("stdin")
            else:
                await self._write(found, at, request.data)

    @serves("TaskExecStdinStatus", fields="task_id exec_id")
    async def stdin_status(self, request: Any) -> Any:
        _, found = self._exec(request)
        return router.TaskExecStdinStatusResponse(num_bytes_written=found.written, closed=found.closed)

    @serves("TaskExecWait", fields="task_id exec_id")
    async def exec_wait(self, request: Any) -> Any:
        sandbox, found = self._exec(request)
        done = asyncio.ensure_future(found.process.wait())
        ended = asyncio.ensure_future(sandbox.ended.wait())
        try:
            await asyncio.wait([done, ended], return_when=asyncio.FIRST_COMPLETED)
        finally:
            done.cancel()
            ended.cancel()
        self._state.by_task(request.task_id)
        return router.TaskExecWaitResponse(**_status(found))

    @serves("TaskExecPoll", fields="task_id exec_id")
    async def exec_poll(self, request: Any) -> Any:
        _, found = self._exec(request)
        return router.TaskExecPollResponse(**(_status(found) if found.process.code is not None else {}))

    @serves("TaskSnapshotFilesystem", fields="task_id snapshot_id ttl_seconds")
    async def snapshot_filesystem(self, request: Any) -> Any:
        """assumed: a repeated snapshot id gives the first one's image (source: the SDK sends one id on each retry)."""
        sandbox = self._state.by_task(request.task_id)
        image_id = self.snapshots.get(request.snapshot_id)
        if image_id is None:
            image_id = self._state.new_id("im")
            folder = self._state.folder / image_id
            await sandbox.cell.snapshot(folder)
            self._state.images[image_id] = folder
            self.snapshots[request.snapshot_id] = image_id
        return router.TaskSnapshotFilesystemResponse(image_id=image_id)

    @serves("TaskReloadVolumes", fields="task_id")
    async def reload_volumes(self, request: Any) -> Any:
        self._state.by_task(request.task_id)
        return router.TaskReloadVolumesResponse()


def _status(found: Exec) -> dict[str, int]:
    code = found.process.code or 0
    return {"signal": -code} if code < 0 else {"code": code}
