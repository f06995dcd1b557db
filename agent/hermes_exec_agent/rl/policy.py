"""The server of the model that is trained: a job in a target, a forwarded port, and the adapters that it loads.

The job belongs to the terminal, so it ends with it, and with its lease if this process is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import hermes_exec
from hermes_exec._async import cancel_and_wait, shield_to_completion
from hermes_exec.config.paths import to_printable
from hermes_exec.errors import HermesError
from hermes_exec.extras import require
from hermes_exec_agent.quoting import flatten
from hermes_exec_agent.rl.adapters import copy_adapter, find_adapter, record_adapter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from hermes_exec import Terminal
    from hermes_exec.terminal.job import Job

_PAUSE_S = 1.0
_LIMIT_S = 10.0
_LOAD_S = 300.0
_STEP_S = 60.0
_END_S = 60.0
_GRACE_S = 10.0
_LARGEST = 1 << 20
_LAST = 4096
_REASON = 300
_LOAD_ROUTES = ("/v1/load_lora_adapter", "/load_lora_adapter")
"""Of vLLM, and of SGLang."""
_LISTEN = "0A"
_LOOPBACK = ("7F", "00000000000000000000000001000000")
"""Ends of 127.0.0.0/8, also as a part of an IPv6 address, and ::1, as the kernel writes them."""
_UNLOAD_ROUTES = ("/v1/unload_lora_adapter", "/unload_lora_adapter")


class PolicyError(HermesError):
    """The server of the policy did not start, has ended, or does not do what it should."""


@dataclass(frozen=True, slots=True)
class PolicyOrder:
    """The server to start."""

    target: str
    argv: Sequence[str]
    port: int
    """That it listens on, on 127.0.0.1 of the target."""
    model: str = ""
    """Its name for the model; by default the first one that it lists."""
    wait_s: float = 1800.0
    """Seconds until it has to answer."""
    adapters: Path | None = None
    """A folder of this machine in which a trainer leaves LoRA adapters."""
    record: Path | None = None
    """The folder of the environment, in which each adapter is recorded before it is loaded."""
    lease_s: float = 60.0
    """Seconds that it runs on after this process vanished."""
    restarts: bool = False
    """Whether it is started again for each adapter, because it loads adapters at its start only."""


@dataclass(frozen=True, slots=True)
class _CopiedAdapter:
    """An adapter whose files are in the target."""

    name: str
    version: str
    folder: str
    """In the target."""

    def list_variables(self) -> dict[str, str]:
        """Return the variables of a server that loads it at its start."""
        return {"HERMES_EXEC_ADAPTER": self.folder, "HERMES_EXEC_POLICY": self.name}


class PolicyServer:
    """The server, and the adapter that it has loaded."""

    def __init__(self, order: PolicyOrder, terminal: Terminal, url: str, say: Callable[[str], None]) -> None:
        """``url`` is the address on this machine."""
        self._order = order
        self._terminal = terminal
        self._say = say
        self._job: Job | None = None
        self._watching: asyncio.Task[str] | None = None
        self.url = url
        self.model = order.model
        self.window: int | None = None
        """Tokens of a prompt and its reply, if the server says it."""
        self.version = ""
        """The model's name, or that of the adapter with its digest."""
        self._loaded = ""
        self._folder = ""
        """The folder of adapters in the target."""

    async def start(self) -> None:
        """Start the server, wait until it answers, and let it load the newest adapter.

        Raises:
            PolicyError: it ended, does not answer in time, or does not load the adapter.
            HermesError: the target failed.
        """
        adapter = await self._copy_newest() if self._order.restarts else None
        await self._run_job(adapter)
        await self._warn_of_others()
        await self.load_newest()

    async def _run_job(self, adapter: _CopiedAdapter | None) -> None:
        """Start the job, wait until it answers, and find its model."""
        env = adapter.list_variables() if adapter else None
        job = self._job = await self._terminal.start(
            list(self._order.argv), name="policy", env=env, keep=False, cap_s=math.inf
        )
        self._watching = asyncio.create_task(self._watch(job))
        give_up = time.monotonic() + self._order.wait_s
        while (await self._request("GET", "/health"))[0] != 200:
            self.check()
            if time.monotonic() > give_up:
                raise PolicyError(
                    f"the policy's server does not answer within {self._order.wait_s:g} s: {await _read_log(job)}",
                    remedy="--policy-port with the port of its command line, or a longer --policy-wait",
                )
            await asyncio.wait([self._watching], timeout=_PAUSE_S)
        models = await self.list_models()
        if adapter is not None:
            self._use(adapter, models)
            return
        self.model = self._order.model or next(iter(models), "")
        if self.model not in models:
            raise PolicyError(
                f"the policy's server lists no model {to_printable(self.model)!r}, but {', '.join(models) or 'none'}",
                remedy="--policy-model",
            )
        self.version, self.window = self.model, models[self.model]

    def _use(self, adapter: _CopiedAdapter, models: dict[str, int | None]) -> None:
        """Let trials ask the adapter.

        Raises:
            PolicyError: the server does not list it.
        """
        if adapter.name not in models:
            raise PolicyError(
                f"the policy's server does not list the adapter {adapter.name} as a model",
                remedy="look at its output; with --policy-restart, serve HERMES_EXEC_ADAPTER as HERMES_EXEC_POLICY",
            )
        self.model = self.version = adapter.name
        self.window = models[adapter.name] or self.window
        self._loaded = adapter.version
        self._say(f"the policy is now the adapter {adapter.name}")

    async def _end_job(self) -> None:
        """End the server.

        Raises:
            HermesError: the target failed, or a process could not be ended.
        """
        watching, self._watching = self._watching, None
        if watching is not None:
            await cancel_and_wait([watching])
        if self._job is not None:
            await self._job.kill(grace_s=_GRACE_S)
            self._job = None

    async def _warn_of_others(self) -> None:
        """Warn that other machines reach the server, if it listens on more than the loopback address."""
        found = await self._terminal.run(["cat", "/proc/net/tcp", "/proc/net/tcp6"], timeout=_STEP_S)
        if listens_for_others(found.stdout_text, self._order.port):
            self._say(
                f"other machines may reach the policy's server on {to_printable(self._order.target)}, and load adapters"
                " into it. Try: its option for the address, such as --host 127.0.0.1"
            )

    def check(self) -> None:
        """Check that the server still runs.

        Raises:
            PolicyError: it has ended; the message has the last line of its output.
        """
        if self._watching is not None and self._watching.done():
            raise PolicyError(f"the policy's server ended: {self._watching.result()}", remedy="look at its output")

    @staticmethod
    async def _watch(job: Job) -> str:
        """Return how the server ended, once it has."""
        try:
            done = await job.wait()
        except HermesError as error:
            return flatten(str(error), _REASON)
        return f"{done.reason}: {await _read_log(job)}"

    async def load_newest(self) -> None:
        """Load the newest whole adapter, unless it is loaded.

        Raises:
            PolicyError: the server does not load it.
            HermesError: it cannot be copied to the target.
        """
        self.check()
        adapter = await self._copy_newest()
        if adapter is None:
            return
        before = self._loaded
        if self._order.restarts:
            await self._end_job()
            if (await self._request("GET", "/health"))[0]:
                raise PolicyError("a server still answers at the policy's port after the policy's server has ended")
            await self._run_job(adapter)
        else:
            await self._call_first(_LOAD_ROUTES, {"lora_name": adapter.name, "lora_path": adapter.folder})
            self._use(adapter, await self.list_models())
        if before:
            if not self._order.restarts:
                with contextlib.suppress(PolicyError):  # it only takes memory
                    await self._call_first(_UNLOAD_ROUTES, {"lora_name": f"policy-{before}"})
            await self._terminal.run(["rm", "-rf", "--", f"{self._folder}/policy-{before}"], timeout=_STEP_S)

    async def _copy_newest(self) -> _CopiedAdapter | None:
        """Record the newest whole adapter and copy it to the target; return None if it is loaded, or there is none."""
        if self._order.adapters is None:
            return None
        found = await asyncio.to_thread(find_adapter, self._order.adapters)
        if found is None or found.version == self._loaded:
            return None
        with tempfile.TemporaryDirectory(prefix="hermes-adapter-") as copy:
            try:
                if not await asyncio.to_thread(copy_adapter, found, Path(copy)):
                    return None  # it is being written; the next round looks again
            except OSError as error:
                raise PolicyError(f"the adapter {to_printable(found.folder)}: {error.strerror}") from error
            if self._order.record is not None:
                await asyncio.to_thread(record_adapter, self._order.record, found)
            remote = f"{await self._find_folder()}/{found.policy}"
            await self._terminal.upload(Path(copy), remote)
        return _CopiedAdapter(found.policy, found.version, remote)

    async def _find_folder(self) -> str:
        if not self._folder:
            command = "umask 077; mktemp -d /tmp/hermes-policy.XXXXXXXX"
            done = await self._terminal.run(command, timeout=_STEP_S, check=True)
            self._folder = done.stdout_text.strip()
        return self._folder

    async def _call_first(self, routes: Sequence[str], body: dict[str, Any]) -> None:
        """Call the first of ``routes`` that the server has."""
        code, text = 404, ""
        for route in routes:
            code, text = await self._request("POST", route, body, _LOAD_S)
            if code not in (404, 405):
                break
        if code != 200:
            raise PolicyError(
                f"the policy's server does not take the adapter: {code or 'no answer'} {flatten(text, _REASON)}",
                remedy="vllm serve --enable-lora with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, SGLang --enable-lora, or"
                " --policy-restart for a server that loads adapters at its start only",
            )

    async def list_models(self) -> dict[str, int | None]:
        """Return the models by name, each with the tokens that it takes."""
        _, text = await self._request("GET", "/v1/models")
        try:
            entries = cast("list[dict[str, Any]]", json.loads(text)["data"])
            found = {str(each["id"]): each.get("max_model_len") for each in entries}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return {}
        return {name: size if isinstance(size, int) and size > 0 else None for name, size in found.items()}

    async def _request(
        self, method: str, path: str, body: dict[str, Any] | None = None, limit_s: float = _LIMIT_S
    ) -> tuple[int, str]:
        """Return the status and the text of an answer; 0 without one."""
        import httpx2

        data = b""
        try:
            async with (
                asyncio.timeout(limit_s),
                httpx2.AsyncClient(timeout=limit_s, trust_env=False, follow_redirects=False) as client,
                client.stream(method, f"{self.url}{path}", json=body) as response,
            ):
                async for piece in response.aiter_bytes():
                    data += piece
                    if len(data) > _LARGEST:
                        return 0, "the answer is too long"
        except (httpx2.HTTPError, httpx2.StreamError, TimeoutError) as error:
            return 0, str(error) or type(error).__name__
        return response.status_code, data.decode("utf-8", "replace")

    async def close(self) -> None:
        """End the server, and remove the files that were copied for it."""
        with contextlib.suppress(HermesError):
            await self._end_job()
        if self._folder:
            with contextlib.suppress(HermesError):
                await self._terminal.run(["rm", "-rf", "--", self._folder], timeout=_STEP_S, cwd="/")


@contextlib.asynccontextmanager
async def serve_policy(order: PolicyOrder, say: Callable[[str], None]) -> AsyncGenerator[PolicyServer]:
    """Run a server until the block ends.

    Raises:
        PolicyError: it does not start, or does not answer.
        HermesError: the target cannot be opened.
    """
    require("rl", "the server of a policy")
    say(f"the policy's server starts on {to_printable(order.target)}")
    async with (
        hermes_exec.open(order.target, lease_s=order.lease_s) as terminal,
        await terminal.forward("127.0.0.1:0", f"127.0.0.1:{order.port}", on_failure=_ignore) as forward,
    ):
        server = PolicyServer(order, terminal, f"http://{forward.address}", say)
        try:
            await server.start()
            yield server
        finally:
            await shield_to_completion(server.close(), limit_s=_END_S)


async def _read_log(job: Job) -> str:
    """Return the last line of a server's output."""
    text = b""
    with contextlib.suppress(HermesError):
        async for event in job.logs(-_LAST):
            text += getattr(event, "data", b"") or b""
    lines = [line.strip() for line in text.decode("utf-8", "replace").splitlines() if line.strip()]
    return flatten(lines[-1], _REASON) if lines else "it wrote nothing"


def listens_for_others(table: str, port: int) -> bool:
    """Whether a table of ``/proc/net`` has a socket that listens on a port for more than this machine."""
    for line in table.splitlines():
        fields = line.split()
        if len(fields) < 4 or fields[3] != _LISTEN:
            continue
        address, _, number = fields[1].rpartition(":")
        if number == f"{port:04X}" and not address.endswith(_LOOPBACK):
            return True
    return False


def _ignore(message: str) -> None:
    """Ignore a connection that failed before the server listens; requests report it."""
