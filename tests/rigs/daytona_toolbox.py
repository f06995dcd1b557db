"""The toolbox of the rig's Daytona: what its proxy answers for a sandbox, carried out in that sandbox's cell."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import secrets
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.rigs.cell import CellError
from tests.rigs.daytona_faults import refusal
from tests.rigs.daytona_pty import Pty

if TYPE_CHECKING:
    from pathlib import Path

    from tests.rigs.daytona_sandbox import Sandbox

_ENVS = "X-Daytona-Pty-Envs~"
_LONGEST_INPUT = 64 << 10
_EXEC_S = 360  # assumed: [D] v0.190 process/execute.go
_CHUNK = 256 << 10


class Toolbox:
    """Each operation is ``op_`` and the generated client's name for it."""

    async def op_execute_command(self, _: web.Request, sandbox: Sandbox, body: dict[str, Any]) -> object:
        """assumed: a shell runs it, its outputs are one text ([S] process.py); too long is a 408 ([D] v0.190)."""
        assert sandbox.cell is not None
        script = 'exec 2>&1 </dev/null; eval "$0"'
        argv = ["/bin/sh", "-c", script, body["command"]]
        process = await sandbox.cell.exec(argv, env=body.get("envs") or {}, cwd=body.get("cwd") or "/root")
        try:
            async with asyncio.timeout(body.get("timeout") or _EXEC_S):
                code, out, __ = await process.communicate()
        except TimeoutError:
            await process.kill()
            return refusal(408, "command execution timeout", "PROCESS_EXECUTION_TIMEOUT")
        return {"exitCode": code if code >= 0 else 128 - code, "result": out.decode("utf-8", "replace")}

    async def op_upload_files(self, request: web.Request, sandbox: Sandbox) -> object:
        boundary = request.headers["Content-Type"].partition("boundary=")[2].strip('"').encode()
        paths: dict[bytes, str] = {}
        for part in (await request.read()).split(b"--" + boundary)[1:-1]:
            head, _, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
            named = re.search(rb'name="([^"]*)\.(path|file)"', head)
            assert named is not None
            if named[2] == b"path":
                paths[named[1]] = content.removesuffix(b"\r\n").decode()
            else:
                file = _inside(sandbox, paths[named[1]])
                try:
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(content.removesuffix(b"\r\n"))
                except OSError as error:
                    return refusal(500, str(error.strerror))
        return {}

    async def op_download_file(self, request: web.Request, sandbox: Sandbox) -> object:
        """assumed: the file as it is, or a 404 ([D] v0.190 fs/download_file.go)."""
        file = _inside(sandbox, request.query["path"])
        return web.FileResponse(file, chunk_size=_CHUNK) if file.is_file() else refusal(404, "file not found")

    async def op_download_files(self, request: web.Request, sandbox: Sandbox, body: dict[str, Any]) -> object:
        boundary = secrets.token_hex(12)
        response = web.StreamResponse(headers={"Content-Type": f"multipart/form-data; boundary={boundary}"})
        await response.prepare(request)
        for path in body["paths"]:
            file = _inside(sandbox, path)
            kind = "file" if file.is_file() else "error"
            head = f'Content-Disposition: form-data; name="{kind}"; filename="{path}"\r\n'
            await response.write(f"--{boundary}\r\n{head}\r\n".encode())
            if kind == "error":
                await response.write(json.dumps({"message": "file not found", "statusCode": 404}).encode())
            else:
                with file.open("rb") as content:
                    while chunk := content.read(_CHUNK):
                        await response.write(chunk)
            await response.write(b"\r\n")
        await response.write(f"--{boundary}--\r\n".encode())
        await response.write_eof()
        return response

    async def op_create_connect_pty(self, request: web.Request, sandbox: Sandbox) -> object:
        """A new terminal and the first connection to it: [S] AsyncProcess.create_pty_session."""
        assert sandbox.cell is not None
        id = request.query["id"]
        if id in sandbox.ptys:
            return refusal(409, f"PTY session with ID '{id}' already exists")
        rows, columns = int(request.query.get("rows", 24)), int(request.query.get("cols", 80))
        pty = await Pty.start(id, sandbox.cell, rows, columns, request.query.get("cwd", ""), _variables(request))
        sandbox.ptys[id] = pty
        return await self._serve(request, sandbox, pty)

    async def op_connect_pty_session(self, request: web.Request, sandbox: Sandbox, session_id: str) -> object:
        return await self._serve(request, sandbox, sandbox.ptys.get(session_id))

    async def _serve(self, request: web.Request, sandbox: Sandbox, pty: Pty | None) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=_LONGEST_INPUT, compress=False)
        await socket.prepare(request)
        if pty is None:
            await socket.send_str(json.dumps({"type": "control", "status": "error", "error": "PTY session not found"}))
            await socket.close()
            return socket
        await pty.attach(socket)
        if pty.over.is_set():
            sandbox.ptys.pop(pty.id, None)
        return socket

    async def op_delete_pty_session(self, _: web.Request, sandbox: Sandbox, session_id: str) -> object:
        pty = sandbox.ptys.pop(session_id, None)
        if pty is None or pty.over.is_set():
            return refusal(404, "PTY session not found")
        with contextlib.suppress(CellError):
            await pty.kill()
        return {"message": "PTY session deleted"}


def _inside(sandbox: Sandbox, path: str) -> Path:
    assert sandbox.cell is not None
    return sandbox.cell.root / path.lstrip("/")


def _variables(request: web.Request) -> dict[str, str]:
    """The variables of a terminal; they come as a token among the sub-protocols ([S] process.py)."""
    for token in request.headers.get("Sec-WebSocket-Protocol", "").split(","):
        if token.strip().startswith(_ENVS):
            coded = token.strip().removeprefix(_ENVS)
            variables: dict[str, str] = json.loads(base64.urlsafe_b64decode(coded + "=" * (-len(coded) % 4)))
            return variables
    return {}
