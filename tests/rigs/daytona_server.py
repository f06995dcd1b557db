"""A server that speaks Daytona's protocols to the unmodified SDK, and really runs the commands.

Served after the clients that ship inside the SDK (``daytona_routes``): a route, a query or a field that the rig does
not model is a failure of the run (``assert not server.complaints``). What the vendor's service does beyond what the SDK
shows is tagged ``assumed:``, with [S] for the SDK's source, [D] for documents and public history, [U] for nothing.

It lives on a thread and a loop of its own; one for a whole session of tests.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import socketio  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]  it ships none
from aiohttp import web

from tests.rigs import daytona_routes
from tests.rigs.bounded import PATIENCE_S
from tests.rigs.cell import CellError
from tests.rigs.daytona_api import MainApi
from tests.rigs.daytona_faults import Drop, Fault, hang_up, refusal
from tests.rigs.daytona_preview import preview
from tests.rigs.daytona_toolbox import Toolbox

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.rigs.daytona_sandbox import Sandbox

T = TypeVar("T")
KEY = "dtn_0123456789abcdef"
_BESIDE = {("GET", "/process/pty/create-connect"): "create_connect_pty"}
"""Routes that the SDK uses and its generated clients do not have: [S] AsyncProcess.create_pty_session."""
_TICK_S = 0.05


class Daytona:
    """``with Daytona() as server``: the service at ``server.api_url``, whose key is ``KEY``."""

    def __init__(self) -> None:
        self.url = ""
        self.host = ""
        """By which the last request came here; records tell it, so that a detour is one for all requests."""
        self.folder = Path(tempfile.mkdtemp(prefix="hx-daytona-"))
        self.sandboxes: dict[str, Sandbox] = {}
        self.gone: dict[str, Sandbox] = {}
        """Evicted ones, which can still be looked at."""
        self.snapshots: dict[str, Path] = {}
        self.volumes: set[str] = set()
        self.builds: list[str] = []
        """The Dockerfiles that were to be built."""
        self.calls: list[tuple[float, str]] = []
        """When each request came (monotonic), and its operation."""
        self.complaints: list[str] = []
        """What the rig does not model, and what went wrong in it: no test run may leave any."""
        self.key = KEY
        self.key_ends: str | None = None
        self.quota = 1000
        self.create_s = 0.2
        self.create_fails = ""
        self.minute_s = 60.0
        """How long a minute of the service's intervals is."""
        self.wall_s = 0.0
        """How far its clock is ahead of ours."""
        self._faults: list[Fault] = []
        self._main = MainApi(self)
        self._toolbox = Toolbox()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._events: Any = socketio.AsyncServer(async_mode="aiohttp", cors_allowed_origins="*")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="daytona-rig", daemon=True)
        self._runner: web.AppRunner | None = None

    @property
    def api_url(self) -> str:
        """What the SDK takes as ``api_url``."""
        return f"{self.url}/api"

    @property
    def toolbox_url(self) -> str:
        """What records tell as ``toolboxProxyUrl``."""
        return f"http://{self.host}/toolbox"

    def __enter__(self) -> Self:
        self._thread.start()
        self.do(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self.do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Carry out ``work`` on the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def also(self, work: Coroutine[Any, Any, T]) -> T:
        """The same, awaited on another loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _start(self) -> None:
        app = web.Application(client_max_size=1 << 30)
        self._events.on("connect", self._connected)
        self._events.attach(app, socketio_path="/api/socket.io")
        app.router.add_route("*", "/{anything:.*}", self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        self.later(self._tick())

    async def _stop(self) -> None:
        for sandbox in list(self.sandboxes.values()):
            await sandbox.halt()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._runner is not None:
            await self._runner.cleanup()
        rest = asyncio.all_tasks() - {asyncio.current_task()}  # those of socket.io have no end of their own
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    def later(self, work: Coroutine[Any, Any, Any]) -> None:
        """Carry out something beside the requests; what goes wrong in it is a complaint."""
        task = self._loop.create_task(work)
        self._tasks.add(task)

        def done(task: asyncio.Task[Any]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                self.complain("".join(traceback.format_exception(error)))

        task.add_done_callback(done)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            for sandbox in list(self.sandboxes.values()):
                await sandbox.tick(self.minute_s)

    async def _connected(self, _: str, __: dict[str, Any], auth: dict[str, Any] | None) -> bool:
        return (auth or {}).get("token") == self.key

    async def tell(self, sandbox: Sandbox) -> None:
        """Tell of a sandbox's state."""
        record = sandbox.record()
        await self._events.emit("sandbox.state.updated", {"sandbox": record, "newState": sandbox.state})

    def forget(self, sandbox: Sandbox) -> None:
        """Drop a sandbox that was deleted."""
        self.sandboxes.pop(sandbox.id, None)

    def volume_folder(self, name: str) -> Path:
        """Where the files of a volume are."""
        return self.folder / f"volume-{name}"

    def complain(self, what: str) -> None:
        """Note a failure of the rig itself."""
        self.complaints.append(what)

    def fail(self, operation: str, **how: Any) -> Fault:
        """Let the next requests of ``operation`` meet a fault; see ``Fault``."""
        fault = Fault(operation, **how)
        self._faults.append(fault)
        return fault

    def recover(self) -> None:
        """Let nothing fail any more, and set every setting back."""
        self._faults.clear()
        self.key, self.key_ends, self.quota, self.create_fails = KEY, None, 1000, ""
        self.minute_s, self.wall_s = 60.0, 0.0

    async def clear(self) -> None:
        """Delete every sandbox."""
        for sandbox in list(self.sandboxes.values()):
            await sandbox.destroy()

    async def new_volume(self, name: str) -> None:
        """Make a volume."""
        self.volumes.add(name)
        self.volume_folder(name).mkdir(exist_ok=True)

    async def cut(self, sandbox: Sandbox, how: Drop) -> None:
        """Break every connection to a sandbox that is in use."""
        for request in list(sandbox.live):
            hang_up(request, how)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when ``condition`` holds; fail when it does not come to hold."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await asyncio.sleep(_TICK_S / 5)

    def count(self, operation: str) -> int:
        """How many requests of an operation came."""
        return sum(name == operation for _, name in self.calls)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        response = await self._met(request)
        if not response.prepared:
            now = time.time() + self.wall_s
            response.headers["Date"] = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(now))
        return response

    async def _met(self, request: web.Request) -> web.StreamResponse:
        path = request.rel_url.raw_path
        service, rest, sandbox_id = self._service(path)
        name = _BESIDE.get((request.method, rest), "")
        query: frozenset[str] | None = None
        arguments: dict[str, Any] = {}
        body = ""
        if not name:
            found = daytona_routes.find(service, request.method, rest) if service else None
            if found is None:
                return (
                    await preview(self, self._main.tokens, request)
                    if path.startswith("/preview/")
                    else self._unknown(request)
                )
            route, arguments = found
            name, query, body = route.name, route.query, route.body
        self.host = request.host
        self.calls.append((time.monotonic(), name))
        handler = getattr(self._toolbox if sandbox_id else self._main, f"op_{name}", None)
        if handler is None:
            return self._unknown(request)
        if query is not None and (strange := set(request.query) - query):
            self.complain(f"{name}: no such query: {sorted(strange)}")
        if request.headers.get("Authorization") != f"Bearer {self.key}":
            return refusal(401, "Invalid credentials")
        fault = next((each for each in self._faults if each.operation == name and each.met < each.times), None)
        if fault is not None and fault.when == "before" and (answer := await fault.meet(request)) is not None:
            return answer
        if body:
            arguments["body"] = await self._body(request, service, body, name)
        answer = await self._work(handler, request, sandbox_id, arguments)
        if fault is not None and fault.when == "after" and (instead := await fault.meet(request)) is not None:
            return instead
        return answer

    def _service(self, path: str) -> tuple[str, str, str]:
        """Which service a path belongs to, the rest of it, and the toolbox's sandbox."""
        if path.startswith("/api/"):
            return daytona_routes.MAIN, path.removeprefix("/api"), ""
        if path.startswith("/toolbox/"):
            _, _, sandbox, *rest = path.split("/")
            return daytona_routes.TOOLBOX, "/" + "/".join(rest), sandbox
        return "", path, ""

    def _unknown(self, request: web.Request) -> web.Response:
        self.complain(f"not modelled: {request.method} {request.rel_url}")
        return refusal(501, f"{request.method} {request.path} is not modelled")

    async def _body(self, request: web.Request, service: str, model: str, name: str) -> dict[str, Any]:
        body: dict[str, Any] = await request.json() if request.can_read_body else {}
        known = daytona_routes.fields(service, model)
        if strange := body.keys() - known.keys():
            self.complain(f"{name}: {model} has no {sorted(strange)}")
        daytona_routes.model(service, model).from_dict(body)  # which checks the types
        return body

    async def _work(
        self, handler: Any, request: web.Request, sandbox_id: str, arguments: dict[str, Any]
    ) -> web.StreamResponse:
        first: list[Any] = [request]
        sandbox = self.sandboxes.get(sandbox_id)
        if sandbox_id:
            if sandbox is None:
                return refusal(404, f"Sandbox {sandbox_id} not found")
            if sandbox.state != "started" or sandbox.cell is None:
                return refusal(400, "bad request: failed to resolve container IP")  # assumed: [D] issue 4142
            first.append(sandbox)
            sandbox.seen()
            sandbox.live.append(request)
        try:
            value = await handler(*first, **arguments)
        except web.HTTPException as error:
            return refusal(error.status, error.text or error.reason)
        except (CellError, ConnectionError) as error:
            return refusal(502, f"the sandbox hung up: {error}")
        except Exception as error:
            self.complain("".join(traceback.format_exception(error)))
            raise
        finally:
            if sandbox is not None:
                sandbox.live.remove(request)
        return value if isinstance(value, web.StreamResponse) else web.json_response(value)


if __name__ == "__main__":  # in a process of its own, until its input ends
    with Daytona() as apart:
        print(apart.api_url, flush=True)
        sys.stdin.read()
        print(json.dumps(apart.complaints))
